#!/usr/bin/env bash
# What does this code do on my card? Each part takes at most ten minutes and writes to OUT/.
#
#     bash tools/gpu_day.sh OUT                      all parts
#     bash tools/gpu_day.sh OUT default which_n      some parts
#     SMALL=1 bash tools/gpu_day.sh OUT              with small numbers: on a CPU, to see that the parts start
#
#     tests      the tests of the loss, the engine, the rounding, the policy and the loop
#     vllm       does vLLM free the card while it sleeps? Skipped unless BRORL_VLLM=1 is set and vLLM is installed
#     default    the default run: does pass@1 rise as on a CPU (docs/real_model.md)?
#     speed      rollouts, log-probs and an update, each beside the plain way (tools/speed.py)
#     smollm     makes SmolLM2's folder, OUT/smollm (after pip install gguf), or uses the one that SMOLLM names
#     n512 n16   the runs of docs/real_model.md with SmolLM2
#     which_n    which N has the least noise in equal time on this card (tools/which_n.py)
#
# OUT/device.txt has the name of the card, OUT/PART.log the output of a part, OUT/PART its run.
set -u
out=$(realpath -m "${1:?name a folder for the results: bash tools/gpu_day.sh OUT}")
smollm=$(realpath -m "${SMOLLM:-$out/smollm}")
shift
parts=${*:-tests vllm default speed smollm n512 n16 which_n}
cd "$(dirname "$0")/.."
mkdir -p "$out"
small=${SMALL:-}
speed="log_probs rollout shared_prompt" minutes=8
[ "$small" ] && speed=log_probs minutes=1

{ nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "no NVIDIA GPU"
  python -c "import torch, transformers; print('torch', torch.__version__, 'transformers', transformers.__version__)"
} | tee "$out/device.txt"

run() {  # NAME COMMAND...
    local name=$1 began=$SECONDS status
    shift
    echo "== $name: $*"
    timeout -k 10 590 "$@" 2>&1 | tee "$out/$name.log" | tail -n 12
    status=${PIPESTATUS[0]}
    [ "$status" = 124 ] && echo "stopped after 590 seconds"
    echo "== $name: exit code $status after $((SECONDS - began)) s" | tee -a "$out/$name.log"
}

train() {  # NAME SETTINGS...: a run; it may be repeated
    local name=$1
    shift
    rm -rf "${out:?}/$name"
    run "$name" python train.py --output_dir "$out" --name "$name" "$@"
}

for part in $parts; do
    case $part in
        tests)
            run tests python -m pytest -q ${small:+-k exactly} tests/test_loss.py tests/test_rollout.py \
                tests/test_engines_rounding.py tests/test_trainer_policy.py tests/test_train.py ;;
        vllm) run vllm python -m pytest -q -m slow tests/test_engines_vllm.py -k test_sleep_frees_the_gpu ;;
        default)
            train default ${small:+--max_steps 1 --rollouts_per_prompt 16 --prompts_per_step 8 --eval_problems 32} ;;
        speed)
            run speed python -m tools.speed $speed ;;
        smollm) [ -d "$smollm" ] || run smollm python -m tools.smollm "$smollm" ;;
        n512 | n16)
            settings=(--model "$smollm" --data "$smollm/largest.jsonl" --eval_data "$smollm/largest_test.jsonl")
            [ "$part" = n16 ] && settings+=(--recipe prorl)
            train "$part" "${settings[@]}" ${small:+--max_steps 1 --rollouts_per_prompt 16 --prompts_per_step 2 \
                --eval_problems 8 --max_tokens_per_micro_batch 4096 --updates_per_step 2} ;;
        which_n)
            rm -rf "$out/which_n"
            run which_n python -m tools.which_n --output_dir "$out" --name which_n --max_minutes "$minutes" ;;
        *) echo "no part $part: tests, vllm, default, speed, smollm, n512, n16, which_n" && exit 2 ;;
    esac
done
