"""What a sweep needs of a machine: programs, containers, GPUs, environment variables.

Whether it is a login node or a compute node makes a difference: many sites have containers and GPUs
on the latter only. Inside a Slurm job everything has to be there.
"""

import os
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.host.process import run_command
from pipeline.planning.doctor import Check, fail, ok, warn
from pipeline.planning.preflight import is_real
from pipeline.planning.provenance import CHECKOUT, RECORDED_PACKAGES, package_versions
from pipeline.records.failure import SandboxError
from pipeline.sandbox.local import bubblewrap_works
from pipeline.sandbox.runtime import find_runtime
from pipeline.serving.command import located
from pipeline.serving.gpu import gpu_sample, pids_on_gpus
from pipeline.serving.parts import missing_parts
from pipeline.spec.model import ModelSpec
from pipeline.spec.sweep import SweepSpec

MIN_OPEN_FILES = 1024
RUNTIME_FLAGS = (
    *("--cleanenv", "--containall", "--no-home", "--no-mount", "--pwd", "--writable"),
    *("--net", "--network", "--bind"),
)
_ASK_TIMEOUT_S = 60.0
_OVERLAY = (
    'd=$(mktemp -d) && mount -t tmpfs tmpfs "$d" && cd "$d" && mkdir l u w m && '
    "mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w,userxattr m"
)


def host_checks(spec: SweepSpec, env: Mapping[str, str]) -> Iterator[Check]:
    """Yield what there is to say about this machine, for the sweep `spec`."""
    yield from _packages()
    yield from _places(env)
    yield from _open_files()
    if spec.sandbox == "apptainer":
        yield from _containers(env)
    else:
        yield from _local_sandbox(spec)
    for model in spec.models.values():
        if model.kind == "vllm":
            yield from _model(model, env, strict=is_real(spec))
    yield from _gpus(env)
    yield from _network(env)


def _packages() -> Iterator[Check]:
    found = package_versions()
    missing = [name for name in RECORDED_PACKAGES if name not in found]
    if missing:
        yield fail("packages", f"missing: {', '.join(missing)}", "make setup")
    else:
        yield ok("packages", ", ".join(f"{name} {version}" for name, version in found.items()))


def _places(env: Mapping[str, str]) -> Iterator[Check]:
    """Warn of a virtual environment in a home folder where there is another place for it."""
    home, scratch = env.get("HOME"), env.get("SCRATCH")
    prefix = Path(sys.prefix)
    if home and scratch and prefix.is_relative_to(home) and not prefix.is_relative_to(scratch):
        yield warn(
            "place of the environment",
            f"{prefix} is in the home folder",
            "it holds some 23,000 files, more than many quotas: clone and make setup in $SCRATCH",
        )
    else:
        yield ok("place of the environment", str(prefix))


def _open_files() -> Iterator[Check]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MIN_OPEN_FILES:
        yield warn("open files", f"at most {soft}", f"ulimit -n {MIN_OPEN_FILES} in cluster.setup")


def _local_sandbox(spec: SweepSpec) -> Iterator[Check]:
    real = [name for name, model in spec.models.items() if model.kind != "sim"]
    if bubblewrap_works():
        yield ok("sandbox", "bubblewrap confines commands")
    elif real:
        yield fail(
            "sandbox",
            "no working bubblewrap: commands of a model would run unconfined",
            "install bubblewrap, or sandbox=apptainer",
        )
    else:
        yield ok("sandbox", "plain copies; enough for the simulated agent's commands")


def _containers(env: Mapping[str, str]) -> Iterator[Check]:
    in_job = "SLURM_JOB_ID" in env
    try:
        runtime = find_runtime()
    except SandboxError as error:
        if in_job:
            yield fail("containers", str(error), "module load, in cluster.setup")
        else:
            yield warn(
                "containers",
                "neither apptainer nor singularity is installed here",
                "many sites have it on compute nodes only: sbatch slurm/doctor.sbatch",
            )
        return
    version = run_command([runtime, "--version"], timeout_s=_ASK_TIMEOUT_S)
    yield ok("containers", f"{runtime}: {version.text.strip()}")
    helped = run_command([runtime, "exec", "--help"], timeout_s=_ASK_TIMEOUT_S).text
    lacking = [flag for flag in RUNTIME_FLAGS if flag not in helped]
    if lacking:
        yield fail("container flags", f"unknown here: {', '.join(lacking)}", "a newer runtime")
    else:
        yield ok("container flags", "all known")
    yield from _writable_roots()


def _writable_roots() -> Iterator[Check]:
    """Find out which way of giving a container a writable root works here."""
    spaces = run_command(["unshare", "--map-root-user", "true"], timeout_s=_ASK_TIMEOUT_S)
    if spaces.returncode != 0:
        yield warn(
            "user namespaces",
            spaces.text.strip() or "not allowed",
            "every sandbox then copies its image, a few seconds each",
        )
        return
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", _OVERLAY]
    if run_command(words, timeout_s=_ASK_TIMEOUT_S).returncode == 0:
        yield ok("writable roots", "overlay mounts in a user namespace")
        return
    fuse = Path("/dev/fuse")
    if shutil.which("fuse-overlayfs") and os.access(fuse, os.R_OK | os.W_OK):
        yield ok("writable roots", "fuse-overlayfs")
    else:
        yield warn(
            "writable roots",
            "neither overlay mounts nor fuse-overlayfs with a readable /dev/fuse",
            "every sandbox then copies its image, a few seconds each",
        )


def _model(model: ModelSpec, env: Mapping[str, str], *, strict: bool) -> Iterator[Check]:
    serve = located(model, CHECKOUT).serve
    found = {
        "vLLM": serve.python if serve.runtime == "venv" else serve.image or "",
        "weights": str(serve.model_path or _cached(model, env)),
    }
    wrong = missing_parts(model, strict=strict)
    if serve.model_path is None and not Path(found["weights"]).exists():
        wrong["serve.model_path"] = (
            f"{found['weights']} is not there, and jobs download nothing; "
            "python -m pipeline.stage model --help"
        )
    parts = {"serve.python": "vLLM", "serve.image": "vLLM", "serve.model_path": "weights"}
    for key, message in wrong.items():
        problem, _, fix = message.partition("; ")
        part = parts.get(key, key)
        found.pop(part, None)
        yield fail(f"model {model.name}: {part}", problem, fix)
    for part, where in found.items():
        yield ok(f"model {model.name}: {part}", where)


def _cached(model: ModelSpec, env: Mapping[str, str]) -> Path:
    """Return where the hub's offline cache would have the model's repository."""
    home = Path(env.get("HF_HOME") or Path(env.get("HOME", "/")) / ".cache" / "huggingface")
    hub = Path(env.get("HF_HUB_CACHE") or home / "hub")
    return hub / f"models--{model.repo.replace('/', '--')}"


def _gpus(env: Mapping[str, str]) -> Iterator[Check]:
    sample = gpu_sample(env)
    if sample is None:
        yield ok("GPUs", "none to be seen here")
        return
    users = pids_on_gpus(env)
    used = f"{sample.mem_bytes / 2**30:,.1f} GB in use, {sample.util:.0%} busy"
    if users:
        yield warn(
            "GPUs",
            f"{used}, by processes {', '.join(map(str, sorted(users)))}",
            "perhaps a leftover server; stop it, or exclude this node",
        )
    else:
        yield ok("GPUs", f"idle; {used}")


def _network(env: Mapping[str, str]) -> Iterator[Check]:
    proxy = env.get("https_proxy") or env.get("HTTPS_PROXY") or env.get("http_proxy")
    if not proxy:
        yield ok("proxy", "none set; jobs need none, staging may (Grace: module load WebProxy)")
        return
    direct = f"{env.get('no_proxy', '')},{env.get('NO_PROXY', '')}"
    if "127.0.0.1" in direct and "localhost" in direct:
        yield ok("proxy", proxy)
    else:
        yield warn(
            "proxy",
            f"{proxy}, with no_proxy={direct.strip(',') or 'unset'}",
            "our own servers bypass it, but tests in sandboxes may not: "
            "export NO_PROXY=127.0.0.1,localhost",
        )
