"""A folder of this process alone in a place that others use too, and what dead owners left there.

A process that is killed with -9 removes nothing; the next one on the node does it for it. The owner
is in the folder's name, as process id and start time, since ids are used again.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from pipeline.host.proctable import ProcessIdentity, is_alive, process_identity


def owned_folder(prefix: str, place: Path | None) -> Path:
    """Return a new folder in `place`, the system's temporary folder where it is None.

    Those of the same prefix whose owners are gone are removed; another user's are left alone.
    """
    root = Path(tempfile.gettempdir()) if place is None else place
    root.mkdir(parents=True, exist_ok=True)
    for folder in root.glob(f"{prefix}*"):
        match = re.match(r"(\d+)-(\d+)-", folder.name.removeprefix(prefix))
        if match and not is_alive(ProcessIdentity(int(match[1]), int(match[2]))):
            shutil.rmtree(folder, ignore_errors=True)
    own = process_identity(os.getpid())
    assert own is not None
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{own.pid}-{own.start_ticks}-", dir=root))
