#!/bin/bash
# What a GPU can say and a CPU cannot, in ten minutes: copies between host and device, a decode step with copies
# running, pause and resume with the same text, and a burst against stock scheduling.
#
#   bench/gpu.sh [FOLDER]          JSON lines and logs go into FOLDER, else $OUT, else a new folder in /tmp
#
# Says first what is there and what it skips. Each part has its own time limit; a part that fails does not stop the
# others, and the exit status is 1 then. Without a GPU it runs on the CPU as far as that goes, and says so.
#   PYTHON       the interpreter (.venv/bin/python of this clone where there is one, else python3)
#   BENCH_MODEL  a model's folder instead of the demo model
#   BENCH_ARGS   more arguments for SGLang (on the CPU: two layers of made-up weights, unless set)
#   BENCH_ROUNDS rounds of the burst (5 on a GPU, 1 on the CPU)
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
folder=${1:-${OUT:-$(mktemp -d -t tokenflow-gpu-XXXXXX)}}
mkdir -p "$folder" || exit 1
folder=$(cd "$folder" && pwd)
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
export PYTHONPATH="$root/engine:$root/bench${PYTHONPATH:+:$PYTHONPATH}"
status=0

say() { printf '== %s\n' "$*"; }

has() { "$python" -c "$1" >/dev/null 2>&1; }

# part NAME LIMIT_S COMMAND...: runs it under a limit; its output goes to the screen and into NAME.log
part() {
  local name=$1 limit_s=$2 began=$SECONDS code
  shift 2
  say "$name (at most $limit_s s)"
  timeout --kill-after=20 "$limit_s" "$@" 2>&1 | tee "$folder/$name.log"
  code=${PIPESTATUS[0]}
  if [ "$code" -eq 124 ]; then say "$name: out of time after $limit_s s"; fi
  if [ "$code" -ne 0 ]; then status=1; fi
  printf '{"part": "%s", "exit_code": %d, "seconds": %d}\n' "$name" "$code" $((SECONDS - began)) >>"$folder/parts.jsonl"
}

say "results in $folder"
: >"$folder/parts.jsonl"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader |
    tee "$folder/gpu.csv"
else
  say "skipped: nvidia-smi is not here"
fi
if ! has 'import torch'; then
  say "nothing can be run: $python has no torch"
  exit 1
fi
device=cpu
if has 'import torch; assert torch.cuda.is_available()'; then device=cuda; else say "no CUDA device for torch: CPU"; fi
has_engine=yes
if ! has 'from importlib.util import find_spec; assert all(map(find_spec, ("sglang", "tokenflow", "zmq")))'; then
  say "skipped: the engine's parts, since sglang, tokenflow or pyzmq is missing"
  has_engine=no
elif [ "$device" = cuda ] && ! has 'import sgl_kernel'; then
  say "skipped: the engine's parts, since sgl_kernel is missing (tfctl engine install --cuda)"
  has_engine=no
fi
export BENCH_DEVICE=$device

if [ "$device" = cuda ]; then
  part copies 60 "$python" bench/copies.py --output "$folder/copies.jsonl"
else
  part copies 60 "$python" bench/copies.py --seconds 0.5 --output "$folder/copies.jsonl"
fi
if [ "$has_engine" = yes ]; then
  rounds=${BENCH_ROUNDS:-$([ "$device" = cuda ] && echo 5 || echo 1)}
  if [ "$device" = cuda ]; then
    part equality 180 "$python" bench/equality.py --requests 24 --slots 8 --output "$folder/equality.jsonl"
  else
    export BENCH_ARGS=${BENCH_ARGS---load-format dummy --json-model-override-args "'{\"num_hidden_layers\": 2}'"}
    part equality 180 "$python" bench/equality.py --output "$folder/equality.jsonl"
  fi
  part burst 300 "$python" bench/engine.py --scenario slots-burst --demand 0.65 --systems stock,tokenflow \
    --rounds "$rounds" --output "$folder/burst.jsonl"
fi
say "what ran"
cat "$folder/parts.jsonl"
exit $status
