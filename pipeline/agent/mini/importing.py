"""How minisweagent is imported: silently, offline, and without touching a home folder.

The package prints, makes a configuration folder and reads a `.env` file in it while it is
imported. Owns the three settings that stop this. litellm is never imported: it costs seconds.
"""

from pathlib import Path

from pipeline.host.library_home import set_variables


def prepare_import() -> None:
    """Set what `import minisweagent` reads; call before importing anything that imports it."""
    set_variables(
        {
            "MSWEA_SILENT_STARTUP": "1",
            # A folder that exists and has no `.env`: nothing is made and nothing is loaded.
            "MSWEA_GLOBAL_CONFIG_DIR": str(Path(__file__).resolve().parent),
        }
    )
