"""One run of so many steps: ours, and mini-SWE-agent's own agent on litellm, for the benchmarks."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import yaml

STEP = Callable[[int], None]

OUTPUT = "".join(f"    line {n:>3} of the file, as long as lines usually are\n" for n in range(78))
"""About 4 kB, the size of an output that an agent reads."""


def our_run(base_url: str, scaffold: str = "mini") -> STEP:
    """Return a function that runs our agent on a scaffold for so many steps."""
    from pipeline.agent.caller import RequestIdentity
    from pipeline.agent.rollout import run_agent
    from pipeline.agent.session import ArmParts, ServedModel, Watch
    from pipeline.arms.full_history import FullHistoryPolicy
    from pipeline.protocols import CommandResult
    from pipeline.serving.client import HttpCompleter
    from pipeline.serving.tokens import token_counter
    from pipeline.spec.agent import AgentSpec
    from pipeline.spec.model import ModelSpec
    from pipeline.views.elide import elide

    conf = Path(__file__).resolve().parents[1] / "conf" / "agent" / f"{scaffold}.yaml"
    agent = yaml.safe_load(conf.read_text())
    model = ModelSpec(name="waits", kind="endpoint", repo="none", context_length=1_000_000)
    completer = HttpCompleter(model, base_url)
    counter = token_counter("chars/3.6")
    identity = RequestIdentity(seed=0, instance_id="i", cache_salt="r.1")

    class Outputs:
        workdir = "/testbed"

        def execute(self, command: str, **_: object) -> CommandResult:
            commit = "rev-parse" in command
            return CommandResult(output="a" * 40 if commit else OUTPUT, returncode=0)

        def upload(self, _data: bytes, _path: str) -> None: ...

    def run(n_steps: int) -> None:
        outcome = run_agent(
            {"problem_statement": "Repair the module."},
            Outputs(),  # type: ignore[arg-type]
            agent=AgentSpec(**(agent | {"step_limit": n_steps})),
            model=ServedModel(spec=model, completer=completer, counter=counter, identity=identity),
            arm=ArmParts(policy=FullHistoryPolicy(), plan=True),
            elide=lambda message: elide(message, 10_000),
            watch=Watch(now=time.time),
        )
        assert len(outcome.calls) == n_steps, outcome.failure

    return run


def peer_run(base_url: str) -> STEP:
    """Return a function that runs mini-SWE-agent with its LitellmModel for so many steps."""
    os.environ |= {
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": str(Path(__file__).resolve().parent),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    import litellm
    from minisweagent import package_dir
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.models.litellm_model import LitellmModel

    litellm.suppress_debug_info = True
    config = yaml.safe_load((package_dir / "config" / "benchmarks" / "swebench.yaml").read_text())

    class Outputs:
        config = None

        def execute(self, _action: dict[str, str], cwd: str = "") -> dict[str, object]:  # noqa: ARG002
            return {"output": OUTPUT, "returncode": 0, "exception_info": ""}

        def get_template_vars(self, **_kwargs: object) -> dict[str, object]:
            return {}

        def serialize(self) -> dict[str, object]:
            return {}

    def run(n_steps: int) -> None:
        model = LitellmModel(
            model_name="openai/waits",
            model_kwargs={"api_base": base_url, "api_key": "none", "drop_params": True},
            cost_tracking="ignore_errors",
            observation_template=config["model"]["observation_template"],
            format_error_template=config["model"]["format_error_template"],
        )
        agent = DefaultAgent(
            model,
            Outputs(),
            system_template=config["agent"]["system_template"],
            instance_template=config["agent"]["instance_template"],
            step_limit=n_steps,
            cost_limit=0,
        )
        agent.run("Repair the module.")
        assert agent.n_calls == n_steps

    return run


SCAFFOLDS: dict[str, Callable[[str], STEP]] = {
    "ours": our_run,
    "ours, trae": lambda base_url: our_run(base_url, "trae"),
}
RUNS: dict[str, Callable[[str], STEP]] = {"ours": our_run, "mini-SWE-agent + litellm": peer_run}
