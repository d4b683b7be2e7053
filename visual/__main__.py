"""``python -m visual COMMAND [name=value …]``: Hydra underneath, bad input in one sentence with exit status 2."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import NoReturn

COMMANDS = {
    "collect": "record a task:                     task=tworoom preset=laptop",
    "train": "train a world model:               task=tworoom kappa=2 preset=laptop seed=3072",
    "plan": "plan with it on held-out pairs:    task=tworoom kappa=2 protocol=laptop seed=3072",
    "diagnose": "what its latent space orders:      task=tworoom kappa=2 preset=laptop seed=3072",
    "film": "film planned pairs:                task=tworoom kappa=2 protocol=laptop seed=3072",
    "advise": "forecast the best κ from logged states: task=tworoom preset=laptop",
    "study": "all of a comparison, what is missing: tasks=[tworoom] kappas=[1,2] seeds=[3072] pairs=200",
}

#: AVX-512, by the names of NumPy 2.4 and of earlier ones; NumPy passes over those it does not know.
_WIDE = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"


def main(arguments: list[str]) -> NoReturn:
    """Run a command and exit: 0 when done, 2 for bad input, 130 when interrupted.

    ``ANISOWM_TRACEBACK=1`` shows the traceback instead of the sentence.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        sys.exit(0 if arguments else 2)
    # Hydra's own flags, such as -m, must come before overrides; here their place does not matter.
    command, overrides = arguments[0], sorted(arguments[1:], key=lambda argument: not argument.startswith("-"))
    if command not in COMMANDS:
        _fail(f"there is no command {command!r}; the commands are {', '.join(COMMANDS)}.")
    # Hydra prints its own errors, over many lines, unless told to raise them.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import DictConfig
    from omegaconf.errors import OmegaConfBaseException

    # Games that stable-worldmodel could also drive are missing here, which concerns none of the tasks.
    warnings.filterwarnings("ignore", message="ale-py not found")
    from visual import commands

    program = sys.argv[0]

    def job(config: DictConfig) -> None:
        # Data-parallel training starts this program again with these arguments: those of one job of a sweep.
        sys.argv = [program, command, *HydraConfig.get().overrides.task]
        try:
            getattr(commands, command)(config)
        except (ValueError, OmegaConfBaseException) as error:
            if os.environ.get("ANISOWM_TRACEBACK") == "1":
                raise
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                # A launcher carries exceptions from its jobs to the caller, but no exit.
                raise ValueError(_sentence(error)) from None
            _fail(_sentence(error))

    sys.argv = [program, *overrides]
    run = hydra.main(version_base="1.3", config_path=str(Path(__file__).parent / "conf"), config_name=command)(job)
    try:
        run()
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if os.environ.get("ANISOWM_TRACEBACK") == "1":
            raise
        _fail(_sentence(error))
    except RuntimeError as error:
        # Launchers say so if there is no Slurm, or what went wrong in a job; elsewhere it is a fault of ours.
        if os.environ.get("ANISOWM_TRACEBACK") == "1" or not {"-m", "--multirun"} & set(overrides):
            raise
        _fail(_sentence(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


def _usage() -> str:
    lines = [f"  {name:<10}{text}" for name, text in COMMANDS.items()]
    return "\n".join(["python -m visual COMMAND [name=value …]", "", *lines])


def _sentence(error: BaseException) -> str:
    """What went wrong without Hydra's advice on syntax and OmegaConf's type dump."""
    kept = []
    for line in str(error).splitlines():
        if line.strip().startswith(
            ("full_key:", "object_type=", "reference_type=", "To append", "See https", "Config search")
        ):
            break
        kept.append(line.strip())
    return " ".join(" ".join(kept).split()) or type(error).__name__


def _fail(sentence: str) -> NoReturn:
    print(f"error: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)


def same_kernels_everywhere() -> None:
    """Let NumPy compute alike on every x86 with AVX2 under Linux, unless the user chose otherwise.

    Left alone, OpenBLAS and NumPy's sines take the kernels of the processor at hand, which round differently. Cube's
    inverse kinematics goes through both, so its recordings differed between machines: joint angles by up to 2e-5, and a
    pixel in two or three of 18,300 frames. This must run before NumPy is imported, and reaches the processes that this
    one starts. PyTorch has its own kernels.
    """
    processor = Path("/proc/cpuinfo")
    if not processor.is_file() or "avx2" not in processor.read_text(encoding="utf-8", errors="replace").split():
        return
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
    # NumPy refuses to have both a list of what to enable and one of what to disable.
    if "NPY_ENABLE_CPU_FEATURES" not in os.environ:
        os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", _WIDE)


if __name__ == "__main__":
    same_kernels_everywhere()
    main(sys.argv[1:])
