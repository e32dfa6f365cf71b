"""The folder of one server's compiled kernels, on the node's own disk, and what dead owners left.

A worker that is killed with -9 removes nothing; the next one on the node does it for it. The owner
is in the folder's name, as process id and start time, since ids are used again.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from pipeline.host.proctable import ProcessIdentity, is_alive, process_identity

PREFIX = "planprune-vllm-"
_NAME = re.compile(re.escape(PREFIX) + r"(\d+)-(\d+)-")


def fresh_cache(scratch: Path | None) -> Path:
    """Return a new folder in `scratch`, the system's temporary folder where it is None.

    Those whose owners are gone are removed; another user's are left alone.
    """
    root = Path(tempfile.gettempdir()) if scratch is None else scratch
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.glob(f"{PREFIX}*"):
        match = _NAME.match(folder.name)
        if match and not is_alive(ProcessIdentity(int(match[1]), int(match[2]))):
            shutil.rmtree(folder, ignore_errors=True)
    own = process_identity(os.getpid())
    assert own is not None
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{own.pid}-{own.start_ticks}-", dir=root))
