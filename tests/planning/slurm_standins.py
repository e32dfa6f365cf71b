"""Programs that stand for Slurm's, and write down what they were asked and what they saw.

A real Slurm is in tests/system; these are for what launch hands over, and for machines without one.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

SBATCH = """#!/bin/bash
[[ " $* " == *" --version "* ]] && { echo "slurm 22.05.8"; exit 0; }
script=${!#}
if [[ " $* " == *" --test-only "* ]]; then kind=tested; else kind=submitted; fi
number=$(mktemp -u XXXXXX)
cp "$script" "%(root)s/$kind-$number.sh"
env | grep -E '^(SBATCH|SALLOC|SRUN|SLURM)_' > "%(root)s/$kind-$number.env"
log=$(sed -n "s/^#SBATCH --output=//p" "$script" | tr -d "'")
[ -d "$(dirname "$log")" ] && touch "%(root)s/$kind-$number.log-folder-is-there"
[ $kind = tested ] && exit 0
sleep %(sbatch_s)s
id=$RANDOM
echo "$id" >> "%(root)s/queue"
echo "Submitted batch job $id"
"""
SQUEUE = """#!/bin/bash
[ -f "%(root)s/queue" ] && sed 's/$/ PENDING/' "%(root)s/queue"
exit 0
"""
NOTHING = "#!/bin/bash\nexit 0\n"


@dataclass(frozen=True)
class StandIns:
    """The folder of the programs and of what they wrote down."""

    root: Path

    @property
    def path(self) -> str:
        return f"{self.root / 'bin'}:{os.environ['PATH']}"

    def scripts(self, kind: str = "submitted") -> list[str]:
        """Return the batch scripts that sbatch was given."""
        return [path.read_text() for path in sorted(self.root.glob(f"{kind}-*.sh"))]

    def options(self, kind: str = "submitted") -> list[list[str]]:
        """Return of each script the options in it."""
        return [
            [line.removeprefix("#SBATCH ") for line in script.splitlines() if "#SBATCH" in line]
            for script in self.scripts(kind)
        ]

    def environments(self, kind: str = "submitted") -> list[list[str]]:
        """Return of each call of sbatch which of Slurm's variables it saw."""
        return [path.read_text().split() for path in sorted(self.root.glob(f"{kind}-*.env"))]

    def log_folders_there(self) -> int:
        """Return how many submissions had a folder for the job's log from the start."""
        return len(list(self.root.glob("submitted-*.log-folder-is-there")))

    def empty_queue(self) -> None:
        (self.root / "queue").unlink(missing_ok=True)


def stand_ins(root: Path, *, sbatch_s: float = 0.0) -> StandIns:
    """Write the programs into `root`; put `path` of what is returned into PATH."""
    programs = root / "bin"
    programs.mkdir(parents=True)
    texts = {"sbatch": SBATCH, "squeue": SQUEUE}
    for name in ("sbatch", "squeue", "srun", "scontrol", "sacct", "sacctmgr", "sinfo", "scancel"):
        program = programs / name
        program.write_text(texts.get(name, NOTHING) % {"root": root, "sbatch_s": sbatch_s})
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return StandIns(root)
