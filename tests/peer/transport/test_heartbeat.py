"""Heartbeat: verdicts by silence, round trips by RFC 6298, and sleep that is not silence."""

import pytest

from peer.transport.heartbeat import Heartbeat, HeartbeatTimes, Verdict

TIMES = HeartbeatTimes(interval_s=1.0, suspect_s=3.0, lost_s=10.0)


def asked(beats: Heartbeat, now_s: float) -> int:
    nonce = beats.beat(now_s)[1]
    assert nonce is not None
    return nonce


def test_silence_grows_from_alive_to_lost() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    verdicts = [beats.beat(float(second))[0] for second in range(1, 12)]
    assert verdicts == [Verdict.ALIVE] * 2 + [Verdict.SUSPECT] * 7 + [Verdict.LOST] * 2


def test_any_message_ends_suspicion() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    for second in range(1, 6):
        beats.beat(float(second))
    beats.heard(5.5)
    assert beats.beat(6.0)[0] is Verdict.ALIVE


def test_own_sleep_is_not_the_other_sides_silence() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    beats.beat(1.0)
    assert beats.beat(46.0)[0] is Verdict.ALIVE
    verdicts = [beats.beat(46.0 + second)[0] for second in range(1, 10)]
    assert verdicts[-1] is Verdict.LOST


def test_round_trip_is_smoothed() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    assert beats.rtt_s is None
    assert beats.timeout_s is None
    beats.answered(asked(beats, 1.0), 1.1)
    assert beats.rtt_s == pytest.approx(0.1)
    assert beats.timeout_s == pytest.approx(0.1 + 4 * 0.05)
    beats.answered(asked(beats, 2.0), 2.3)
    assert beats.rtt_s == pytest.approx(0.1 + 0.2 / 8)
    assert beats.timeout_s == pytest.approx(0.125 + 4 * (0.05 + (0.2 - 0.05) / 4))


def test_answers_nobody_asked_for_change_nothing() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    nonce = asked(beats, 1.0)
    beats.answered(nonce, 1.5)
    beats.answered(nonce, 9.0)
    beats.answered(12345, 9.0)
    assert beats.rtt_s == pytest.approx(0.5)


def test_nonces_differ_and_unanswered_ones_are_forgotten() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    nonces = [asked(beats, second / 100) for second in range(200)]
    assert len(set(nonces)) == 200
    beats.answered(nonces[0], 100.0)
    assert beats.rtt_s is None


def test_who_is_heard_anyway_is_asked_at_every_fifth_beat() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    beats.answered(asked(beats, 0.0), 0.1)
    due = []
    for second in range(1, 12):
        beats.heard(second - 0.5)
        due.append(beats.beat(float(second))[1] is not None)
    assert due == [False, False, False, False, True] * 2 + [False]


def test_silence_and_work_are_asked_about_at_every_beat() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    beats.answered(asked(beats, 0.0), 0.1)
    beats.heard(0.5)
    assert beats.beat(1.0)[1] is None
    assert beats.beat(2.0)[1] is not None
    for second in range(3, 6):
        beats.heard(second - 0.5)
        beats.works()
        assert beats.beat(float(second))[1] is not None


def test_as_long_as_the_round_trip_is_unknown_every_beat_asks() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    for second in range(1, 5):
        beats.heard(second - 0.5)
        assert beats.beat(float(second))[1] is not None


def test_who_slept_asks_at_once_and_is_owed_no_silence() -> None:
    beats = Heartbeat(TIMES, now_s=0.0)
    beats.answered(asked(beats, 0.0), 0.1)
    beats.heard(0.5)
    assert beats.beat(1.0)[1] is None
    assert beats.beat(61.0)[1] is not None, "this side slept, and heard nothing since"
    beats.heard(119.9)  # what waited is handled before the late beat
    verdicts = [beats.beat(120.0 + second)[0] for second in range(11)]
    assert verdicts[-1] is Verdict.LOST, "what comes after the sleep is silence"
