"""The runtime's promises under other instruction sets than this machine's: the tests marked `any_processor`, emulated.

qemu refuses instructions that the named processor lacks, so what passes here used none of them. Its user mode (7.2 or
newer) emulates no AVX-512: the machine's own kernels with it are tested wherever it has them. One test takes it about
10 s of processor time, so `make test` has one or two of each promise emulated, on those processors whose kind is not
this machine's own, which the same tests run on without an emulator; `make soak` has all.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from numpy._core._multiarray_umath import __cpu_features__

from tests.seeds import SERIES

ROOT = Path(__file__).parents[3]
WITHIN_S = 1500.0  # about 40 s of a core for FEW; others run beside them, and come first
FEW = (
    "test_arithmetic.py::test_this_machine_keeps_the_promise_in_some_form[4bit]",
    "test_execution.py::test_quantized_forms_come_close[changes0-4bit]",
    "test_stage_runtime.py::test_a_crowd_changes_nothing[0-4bit]",
    "test_stage_runtime_digests.py::test_the_same_tokens_give_the_same_digests_in_any_company",
)
FEATURES_THEN_PYTEST = """
import json, sys
from numpy._core._multiarray_umath import __cpu_features__ as features
print(json.dumps([name for name, there in features.items() if there]), flush=True)
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Processor:
    """A `-cpu` model of qemu without the features that its emulation cannot give, and what tells its kernels apart."""

    model: str
    has: frozenset[str]
    lacks: frozenset[str]

    def fits(self, features: set[str]) -> bool:
        """Whether a processor with these features, as numpy names them, is of this kind."""
        return features >= self.has and not features & self.lacks


PROCESSORS = {
    "AVX2": Processor(
        "Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm",
        has=frozenset({"AVX2", "FMA3"}),
        lacks=frozenset({"AVX512F"}),
    ),
    "SSE4": Processor(
        "Nehalem", has=frozenset({"SSE42"}), lacks=frozenset({"AVX", "FMA3", "AVX2", "AVX512F"})
    ),
}


def own(processor: Processor) -> bool:
    """Whether this machine is of that kind. One with VNNI for AVX2, which numpy does not tell of, is another."""
    features = {name for name, there in __cpu_features__.items() if there}
    try:
        vnni = "avx_vnni" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        vnni = True  # nobody knows
    return processor.fits(features) and not vnni


EMULATED = [kind for kind, processor in PROCESSORS.items() if SERIES == "soak" or not own(processor)]


@pytest.fixture
def qemu() -> str:
    """The path of qemu-x86_64. Fails where it is missing, unless SHOAL_TEST_QEMU=none accepts that."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip(
            f"qemu's user mode emulates this Python on Linux on x86_64 only, not on {platform.platform()}"
        )
    if os.environ.get("SHOAL_TEST_QEMU") == "none":
        pytest.skip("SHOAL_TEST_QEMU=none: no other instruction set was tested")
    found = shutil.which("qemu-x86_64")
    if found is None:
        pytest.fail(
            "qemu-x86_64 is not installed, so other instruction sets were NOT tested: install the package qemu-user, "
            "or accept that by SHOAL_TEST_QEMU=none"
        )
    return found


def emulated(qemu: str, processor: Processor, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments on that processor. It is one process, which is killed when it takes too long."""
    return subprocess.run(
        [qemu, "-cpu", processor.model, sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.series
@pytest.mark.timeout(WITHIN_S + 100)
@pytest.mark.parametrize("kind", EMULATED)
def test_promises_hold_under_another_instruction_set(qemu: str, kind: str, tmp_path: Path) -> None:
    processor = PROCESSORS[kind]
    folder = Path(__file__).parent
    run = emulated(
        qemu,
        processor,
        *("-c", FEATURES_THEN_PYTEST),
        *("-m", "any_processor", "-p", "no:cacheprovider", "--tb=short", "--no-header"),
        *(
            "-o",
            "console_output_style=classic",
            f"--basetemp={tmp_path / 'emulated'}",
            *([str(folder)] if SERIES == "soak" else [f"{folder}/{name}" for name in FEW]),
        ),
    )
    if run.returncode != 0:
        pytest.fail(f"under {kind} ({processor.model}):\n{run.stdout}", pytrace=False)
    first, *_, last = run.stdout.splitlines()
    features = set(json.loads(first))
    assert features >= processor.has, (
        f"{qemu} does not emulate {processor.has - features}: 7.2 or newer is needed"
    )
    assert not features & processor.lacks
    assert " passed" in last, run.stdout
    assert SERIES == "soak" or f" {len(FEW)} passed" in last, run.stdout
    assert " skipped" not in last, run.stdout
