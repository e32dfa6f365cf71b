"""From the command line to a command's settings: one file of conf/linehead, and overrides.

The line head's only module that knows Hydra. Every problem comes out as `ConfigError`, with what
to write instead.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.spec.parse import SpecError, parsed

CONF = Path(__file__).resolve().parents[2] / "conf" / "linehead"

T = TypeVar("T")


class ConfigError(Exception):
    """The command line or a config file is wrong; the message says what to write instead."""


def settings_of(settings: type[T], name: str, overrides: Sequence[str], *, conf: Path = CONF) -> T:
    """Return the settings that `conf`/`name`.yaml and `overrides` describe.

    A key that the file leaves at its default may be overridden as well.

    Raises:
        ConfigError: unknown or missing keys, wrong values, overrides that do not parse.
    """
    forced = [o if o.startswith(("+", "~")) else f"++{o}" for o in overrides]
    for override in forced:
        if "=" not in override and not override.startswith("~"):
            raise ConfigError(f"{override.lstrip('+')!r} is no key=value")
    try:
        with initialize_config_dir(str(conf), version_base="1.3"):
            config = compose(name, overrides=forced)
        tree = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return parsed(settings, tree)
    except SpecError as error:
        raise ConfigError(f"linehead {name} is not valid:\n{error}") from None
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explained(name, error)) from None


def _explained(name: str, error: Exception) -> str:
    text = str(error).splitlines()[0]
    if "Missing mandatory value" in text:
        return f"linehead {name} needs {text.split(':')[-1].strip()}=VALUE"
    cause = str(error.__cause__ or "").splitlines()
    return (
        f"linehead {name}: {text}{': ' + cause[0] if cause else ''} "
        "(a value with special characters is quoted twice: 'key=\"a=b\"')"
    )
