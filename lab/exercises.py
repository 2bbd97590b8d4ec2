"""The exercises, in the paper's order: a function, its points, the tests that grade it, a hint without the formula.

An exercise may call those above it. "Graded with the next" in a hint: its tests call the next one too.
`python -m lab.blank --hard` leaves the hint as the only docstring, so a hint names the inputs and the result.
"""

from typing import NamedTuple


class Exercise(NamedTuple):
    """One function to write. Its points are for passing all of its tests."""

    function: str  # "brorl.masses"
    points: int
    tests: str  # names of test functions, of the file that `test_file` names
    hint: str

    @property
    def module(self) -> str:
        return self.function.partition(".")[0]

    @property
    def name(self) -> str:
        return self.function.partition(".")[2]

    @property
    def test_ids(self) -> list[str]:
        """ "test_brorl.py::test_mood_literal", ..., as docs/paper.md and pytest write them."""
        file = MODULES[self.module].removesuffix(".py").replace("/", "_")
        return [f"test_{file}.py::{test}" for test in self.tests.split()]


# The files that a student works on
MODULES = {name: f"{name}.py" for name in ("brorl", "loss", "sim", "rollout", "verify")} | {"loop": "lab/loop.py"}
STAGES = ("        # 4:", "        # 8:")  # the student writes the lines of `train` between these comments

EXERCISES = [
    # Section 2: mass balance
    Exercise("brorl.masses", 2, "test_masses_literal",
             "Eight sums (...) over p or p², by correct and by drawn, each at most 1. `_check_bool` the masks."),
    Exercise("brorl.mood", 1, "test_mood_literal", "The mood S_R (...) from the two drawn masses and the two rewards."),
    Exercise("brorl.token_rewards", 1, "test_token_rewards_literal",
             "A reward for each token (..., V), in p's dtype. `_check_bool` and `_check_rewards` refuse wrong input."),
    Exercise("brorl.surrogate", 1, "test_one_step_literal",
             "The linear surrogate (...), a loss to minimise. Graded with the next two."),
    Exercise("brorl.logit_step", 2, "test_one_step_literal test_logit_step_is_the_gradient_of_the_surrogate",
             "One gradient step on the surrogate as a change of the logits (..., V). Graded with the next."),
    Exercise("brorl.probability_step", 1, "test_one_step_literal test_probability_step_is_the_softmax_jacobian",
             "How p moves to first order when the logits move by dz: the softmax's Jacobian times dz."),
    Exercise("brorl.unsampled_coupling", 2, "test_theorem_1_literal test_each_term_is_the_part_of_its_own_tokens",
             "Theorem 1's third term: the change through the tokens that were not drawn. Graded with the next."),
    Exercise("brorl.mass_balance", 3,
             "test_theorem_1_literal test_theorem_1_is_the_derivative_of_q_pos_along_the_step "
             "test_each_term_is_the_part_of_its_own_tokens",
             "The three terms of Theorem 1, each multiplied by η/N. First check r_c and r_w with `_check_rewards`."),
    Exercise("brorl.expected_unsampled_second_moment", 2, "test_corollary_3_at_its_ends",
             "Lemma 2's expectation for each token. Mind p = 1 with N = 0, and 1e-9 in float32. Graded with the next."),
    Exercise("brorl.total_unsampled_second_moment", 1, "test_lemma_2_by_enumeration_of_all_draws",
             "Corollary 3: Lemma 2 summed over the tokens, or over `members` alone, which `_check_bool` checks."),
    Exercise("brorl.pass_at_k", 2, "test_pass_at_k_literal test_masses_that_round_above_one_break_nothing",
             "The probability that one of k tries is right. Q_pos = 1e-12 must survive float32."),
    Exercise("brorl.pass_at_k_estimate", 1,
             "test_pass_at_k_estimate_is_the_mean_over_all_subsets test_wrong_use_is_named",
             "Share of k-subsets of n samples that contain a correct one. One test tries all refusals of this file."),
    # Section 3.1: the objective
    Exercise("loss.informative", 1, "test_dynamic_sampling_keeps_mixed_groups_only",
             "Which prompts (P,) dynamic sampling keeps, from verdicts (P, N). Refuse other dtypes than bool."),
    Exercise("loss.mean_centred", 1, "test_group_advantage_by_hand", "The paper's group baseline, (P, N)."),
    Exercise("loss.group_std", 1, "test_what_a_prompt_weighs_by_enumeration",
             "GRPO's advantage, (P, N); eps keeps a group of equal rewards finite. Graded with the next."),
    Exercise("loss.group_mean", 1, "test_what_a_prompt_weighs_by_enumeration",
             "MaxRL's advantage, (P, N): centred rewards over the group's mean."),
    Exercise("loss.whiten", 2,
             "test_whitening_by_hand test_whitening_cancels_a_factor_that_all_groups_share",
             "Over the advantages that are not NaN, in float64; eps is added to the std. The input's dtype returns."),
    Exercise("loss.importance_ratio", 1, "test_loss_against_a_loop",
             "The ratio r of each token, from log-probs. Graded with `brorl`."),
    Exercise("loss.clipped_objective", 3, "test_clipped_objective_by_hand",
             "The clipped objective of each token, to be maximised. Mind the sign of A."),
    Exercise("loss.truncated_importance_weight", 1, "test_truncated_importance_weight_by_hand",
             "Trainer over engine for each token, capped, as a constant of the gradient."),
    Exercise("loss.kl_k1", 1, "test_kl_estimators_by_hand test_kl_estimators_by_exact_expectation",
             "The plain estimator of KL(π_θ || π_ref). The three are graded together."),
    Exercise("loss.kl_k2", 1, "test_kl_estimators_by_hand test_kl_estimators_by_exact_expectation",
             "The square one, whose gradient is right on average."),
    Exercise("loss.kl_k3", 1, "test_kl_estimators_by_hand test_kl_estimators_by_exact_expectation",
             "The one that is never negative. Mind small differences in float32."),
    Exercise("loss.token_mean", 1, "test_loss_does_not_depend_on_the_split_into_micro_batches",
             "The share of these tokens in the mean over the optimizer step. Graded with `policy_loss`."),
    Exercise("loss.brorl", 2, "test_loss_against_a_loop",
             "The objective of each token, to be maximised, from `Tokens`. Graded with the next."),
    Exercise("loss.policy_loss", 2,
             "test_loss_against_a_loop test_loss_is_zero_on_policy_but_its_gradient_is_not "
             "test_a_token_mean_has_the_direction_of_the_trajectory_mean "
             "test_the_loss_reports_the_metrics_of_its_own_tokens",
             "The mean of an objective over tokens or responses, and KL. Refuse a kl_coef without a reference."),
    # Section 4.1: the simulator
    Exercise("sim.initial_logits", 1, "test_initial_logits_seed_the_correct_mass_of_the_paper",
             "Section 4.1's start (V,): the correct tokens come first, the anchor is token 0."),
    Exercise("sim.measure", 1, "test_measure_by_hand",
             "Figure 3's panels and the anchor, as numbers that hold no view of p."),
    Exercise("sim.add_centred_rewards", 1, "test_centred_rewards_by_hand",
             "Adds each draw's reward, minus the mean over the draws, to its token in `out`."),
    Exercise("sim.surrogate_gradient", 2, "test_gradient_is_autograds",
             "The gradient of the surrogate by the logits (..., V), in closed form, temperature included."),
    Exercise("sim.loop", 3, "test_the_loop_as_written_is_the_plain_one",
             "Section 4.1's loop with autograd: yield `measure` before each update and after the last."),
    # Section 4.2: rollouts and rewards
    Exercise("rollout.sampling_logprobs", 2, "test_sampling_logprobs_by_hand",
             "Temperature, then top-k, then top-p, each renormalised; temperature 0 is the model's own log-probs."),
    Exercise("rollout.draw", 2,
             "test_drawing_reaches_rare_tokens_and_never_impossible_ones test_a_rollout_draws_from_its_own_row",
             "One token per rollout: invert the cdf of its row at its uniform."),
    Exercise("verify.judge_countdown", 2, "test_countdown_correct test_countdown_wrong test_countdown_unparsed",
             "A verdict on one expression. `_parse_expression` and `_evaluate` are below; a policy finds every gap."),
    Exercise("loop.train", 6,
             "test_the_gradient_is_the_originals test_mini_batches_share_the_rollouts "
             "test_the_old_policy_and_the_reference_stay test_a_step_without_an_informative_prompt_is_skipped "
             "test_the_learning_curve_rises",
             "Stages 4 to 7, about 20 lines. Append the metrics of each mini-batch, with `grad_norm`, to `updates`."),
]  # fmt: skip
