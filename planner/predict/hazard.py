"""How likely a peer is to leave before anything is known of it: priors by platform, and by what holds of it. Pure.

A peer is taken to be as likely to leave at any moment, so one stay over its usual length is the hazard.
"""

from __future__ import annotations

from typing import Final

HOUR: Final = 3600.0
PRIOR_STAY_S: Final = {"process": 48 * HOUR, "tab": 2 * HOUR, "phone": HOUR / 3}
CONDITIONS: Final = {  # times the hazard
    "background": 3.0,
    "throttled": 2.0,
    "battery": 2.0,
    "metered": 2.0,  # its person saves data
}
