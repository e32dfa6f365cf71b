"""Other people's agents as processes: mini-SWE-agent's command line and `llm`'s.

`llm` is no dependency of this project: `PLANPRUNE_LLM` names its command where it is installed.
"""

import os
import subprocess
import sys
from pathlib import Path

KEY = "sk-of-an-agent-0815"
_LLM_TOOL = '''
import os, subprocess

def bash(command: str) -> str:
    """Run a bash command and see its output."""
    if "COMPLETE_TASK" in command:
        os._exit(0)  # llm goes on for as long as the model calls tools
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr
'''


def llm_command() -> Path | None:
    """Return the command of `llm`, if somebody says where it is."""
    named = os.environ.get("PLANPRUNE_LLM")
    return Path(named) if named and Path(named).exists() else None


def mini(
    url: str, repository: Path, task: str, *config: str, model: str, text: bool = False
) -> str:
    """Have `mini` work on a task, and return what it printed."""
    form = "_textbased" if text else ""
    words = [str(Path(sys.executable).with_name("mini")), "--yolo", "--exit-immediately"]
    words += ["--task", task, "--model", f"openai/{model}", "--cost-limit", "0"]
    words += ["--model-class", f"litellm{form}", "--output", str(repository / ".mini.json")]
    for value in (f"mini{form}.yaml", f"model.model_kwargs.api_base={url}", *config):
        words += ["--config", value]
    settings = {
        "MSWEA_CONFIGURED": "true",
        "MSWEA_GLOBAL_CONFIG_DIR": str(repository / ".mini"),
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_KEY": KEY,
    }
    return _run(words, repository, settings)


def llm(
    command: Path,
    url: str,
    repository: Path,
    task: str,
    *words: str,
    model: str,
    tools: bool = True,
) -> str:
    """Have `llm` work on a task, with a shell where there are tools; return what it printed."""
    home = repository / ".llm"
    home.mkdir()
    (home / "extra-openai-models.yaml").write_text(
        f"- model_id: {model}\n  model_name: {model}\n"
        f"  api_base: {url}\n  supports_tools: {tools}\n"
    )
    asked = [str(command), "--model", model, "--key", KEY, "--system", "You fix bugs."]
    asked += ["--functions", _LLM_TOOL, "--chain-limit", "60"] if tools else []
    asked += [*words, task]
    return _run(asked, repository, {"LLM_USER_PATH": str(home)})


def _run(words: list[str], folder: Path, settings: dict[str, str]) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
