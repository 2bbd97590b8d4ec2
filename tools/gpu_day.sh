#!/usr/bin/env bash
# What does this code do on my card? A task that fails does not stop the next one. Each command of a task prints its
# output and then a line "task, exit, seconds". It is stopped after 590 seconds, and killed at 600 if it still runs.
# `peaks` has six commands, `smollm` three, other tasks have one.
#
#     bash tools/gpu_day.sh OUT                      all tasks
#     bash tools/gpu_day.sh OUT model vllm           some tasks; big, peaks and vllm need OUT/model, which model makes
#     TINY=1 bash tools/gpu_day.sh OUT               tiny sizes, which run on a CPU
#
#     tests      the tests of the loss, the engine, the rounding, the policy, the loop, --offload and --lora_rank
#     default    the default run: does pass@1 rise as on a CPU (docs/real_model.md)?
#     model      makes a random model of 1.5B parameters in Qwen2.5's shape, OUT/model; no download
#     big        trains it with N = 512, B = 2 on vLLM
#     peaks      trains it with the flags of docs/memory.md for 24, 40 and 80 GB, each within such a budget
#     vllm       vLLM's tokens/s with N = 16 and 512, with and without a seed for each rollout; sync, sleep, wake
#     smollm     SmolLM2 for ten steps on both engines (pip install gguf; SMOLLM=FOLDER names its folder if you have one)
#     two        a step of the default run with two processes, if there are two cards
#
# OUT/TASK.log has the output again. OUT/summary.md has versions, card and results, for an issue.
set -uo pipefail
out=$(realpath -m "${1:?name a folder for the results: bash tools/gpu_day.sh OUT}")
smollm=$(realpath -m "${SMOLLM:-$out/smollm}")
shift
known="tests default model big peaks vllm smollm two"
tasks=${*:-$known}
for task in $tasks; do
    [[ " $known " = *" $task "* ]] || { echo "there is no task $task: choose from ${known// /, }" >&2 && exit 2; }
done
cd "$(dirname "$0")/.."
mkdir -p "$out"
tiny=${TINY:-}
failed=0
export PYTHONUNBUFFERED=1
card_mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits 2>/dev/null | head -1)
cards=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
have_vllm=$(python -c "import importlib.util as util; print('yes' if util.find_spec('vllm') else '')")
[ "$card_mib" ] || export ACCELERATE_USE_CPU=true # else two processes on a CPU do not find each other
[ "$card_mib" ] || [ "$tiny" ] || { echo "no NVIDIA GPU here: TINY=1 runs tiny sizes on a CPU" && exit 2; }

record() { # TASK EXIT SECONDS: a line of the summary, in place of its line from an earlier call
    touch "$out/tasks.csv"
    sed -i "/^$1, /d" "$out/tasks.csv"
    echo "$1, $2, $3" | tee -a "$out/tasks.csv"
}

run() { # TASK COMMAND...: shows the output as it comes, and keeps it in a log
    local task=$1 began=$SECONDS status
    shift
    echo "== $task: $*"
    timeout -k 10 590 "$@" 2>&1 | tee "$out/$task.log"
    status=$? # of the command, because of pipefail
    [ "$status" = 124 ] && echo "stopped after 590 seconds"
    [ "$status" = 137 ] && echo "killed: after 600 seconds, or because the memory was full"
    [ "$status" = 0 ] || failed=1
    record "$task" "$status" $((SECONDS - began))
}

skip() { # TASK REASON
    echo "== $1: skipped, $2"
    record "$1" "skipped: $2" 0
}

make_run() { # TASK COMMAND... SETTINGS...: a run OUT/TASK, anew. Deletes its model and checkpoints: they may take 30 GB
    local task=$1
    shift
    rm -rf "${out:?}/$task"
    run "$task" "$@" --output_dir "$out" --name "$task"
    rm -rf "${out:?}/$task/model" "${out:?}/$task/checkpoints"
}

on_model=(--model "$out/model" --rewards "$out/model/rewards.py" --data "$out/model/train.jsonl"
    --eval_data "$out/model/test.jsonl" --eval_every 0 --eval_problems 2 --eval_samples 2 --eval_max_response_tokens 8
    --learning_rate 1e-6 --updates_per_step 4)
size=1.5B
if [ "$tiny" ]; then
    size=tiny
    small=(--max_steps 1 --rollouts_per_prompt 16 --prompts_per_step 4 --eval_problems 16 --eval_samples 4)
fi

for task in $tasks; do
    case $task in
        tests)
            files=(tests/test_loss.py tests/test_rollout.py tests/test_engines_rounding.py tests/test_trainer_policy.py
                tests/test_train.py tests/test_trainer_offload.py tests/test_trainer_adapters.py)
            [ "$tiny" ] && files=(tests/test_loss.py -k by_hand)
            run tests python -m pytest -q "${files[@]}" ;;
        default) make_run default python train.py ${tiny:+"${small[@]}"} ;;
        model)
            rm -rf "${out:?}/model"
            run model python -m tools.random_model "$out/model" --size $size ;;
        big)
            if [ ! "$have_vllm" ]; then skip big "vLLM is not installed"; continue; fi
            step=(--rollouts_per_prompt 512 --prompts_per_step 2 --max_response_tokens 256 --max_steps 2)
            [ "$tiny" ] && step=(--rollouts_per_prompt 16 --prompts_per_step 2 --max_response_tokens 8 --max_steps 1)
            step+=(--engine vllm --max_tokens_per_micro_batch 8192)
            make_run big python train.py "${on_model[@]}" "${step[@]}" ;;
        peaks)
            step=(--rollouts_per_prompt 16 --prompts_per_step 8 --max_response_tokens 512 --max_steps 1)
            [ "$tiny" ] && step=(--rollouts_per_prompt 8 --prompts_per_step 2 --max_response_tokens 8 --max_steps 1)
            step+=(--engine torch --gpu_memory_utilization 0.05)
            budgets=(24 40 80)
            [ "$tiny" ] && budgets=(24) # a budget is for a card, and a CPU has none
            for budget in "${budgets[@]}"; do # docs/memory.md: the rows of 1.5B and what CUDA reports for the cards
                case $budget in
                    24) gib=22 flags=(--offload --gradient_checkpointing --max_tokens_per_micro_batch 16384) ;;
                    40) gib=39.5 flags=(--gradient_checkpointing --max_tokens_per_micro_batch 16384) ;;
                    80) gib=79 flags=(--max_tokens_per_micro_batch 8192) ;;
                esac
                if [ "$card_mib" ] && [ "$card_mib" -lt $((${gib%.*} * 1024)) ]; then
                    skip "peak$budget" "the card has $card_mib MiB"
                    continue
                fi
                step_within=(python -m tools.gpu_day train_within $gib "${on_model[@]}" "${step[@]}" "${flags[@]}")
                make_run "peak$budget" "${step_within[@]}"
                run "peak${budget}_check" python -m tools.fit --check "$out/peak$budget" --gib $gib
            done ;;
        vllm)
            if [ ! "$have_vllm" ]; then skip vllm "vLLM is not installed"; continue; fi
            run vllm python -m tools.vllm_speed "$out/model" --size $size ;;
        smollm)
            settings=()
            if [ ! "$tiny" ]; then
                [ -d "$smollm" ] || run smollm_folder python -m tools.smollm "$smollm"
                settings=(--model "$smollm" --data "$smollm/largest.jsonl" --eval_data "$smollm/largest_test.jsonl")
            fi
            make_run smollm_torch python train.py --engine torch "${settings[@]}" ${tiny:+"${small[@]}"}
            if [ ! "$have_vllm" ]; then skip smollm_vllm "vLLM is not installed"; continue; fi
            make_run smollm_vllm python train.py --engine vllm "${settings[@]}" ${tiny:+"${small[@]}"} ;;
        two)
            if [ "$card_mib" ] && [ "$cards" -lt 2 ]; then skip two "there is one card"; continue; fi
            step=(--max_steps 1)
            [ "$tiny" ] && step=("${small[@]}")
            make_run two python -m torch.distributed.run --standalone --nproc_per_node 2 train.py "${step[@]}" ;;
    esac
done

{
    python -m tools.gpu_day versions
    printf '\n| task | exit | seconds |\n| --- | --- | --- |\n'
    sed 's/^/| /; s/, \([^,]*\), \([0-9]*\)$/ | \1 | \2 |/' "$out/tasks.csv"
    runs=$(for name in default big peak24 peak40 peak80 smollm_torch smollm_vllm two; do
        [ -s "$out/$name/timing.jsonl" ] && echo "$out/$name"
    done)
    [ "$runs" ] && printf '\n' && python -m tools.gpu_day runs $runs
    for name in peak24_check peak40_check peak80_check vllm; do
        [ -s "$out/$name.log" ] && printf '\n%s\n\n```\n' "$name" && cat "$out/$name.log" && printf '```\n'
    done
} > "$out/summary.md"
echo "wrote $out/summary.md"
exit $failed
