"""What cannot go together is said before Ray starts; and verl's methods look as they did."""

from __future__ import annotations

import copy
import json
import re
import sys

import pytest
import small

pytest.importorskip("verl.trainer")
from omegaconf import OmegaConf

import hapo.verl.settings as settings
from hapo import ends
from hapo.verl.__main__ import prepare


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """verl's configuration with the options of the tests."""
    from hydra import compose, initialize_config_module

    folder = tmp_path_factory.mktemp("refusals")
    data = small.write_data(folder / "data.parquet")
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [*small.options(data, folder), "+hapo.method=luffy", "+hapo.turn_off_epoch=1.5"])


def changed(config, key, value):
    it = copy.deepcopy(config)
    OmegaConf.update(it, key, value, force_add=True)
    return it


def test_a_run_that_can_be_is_prepared(config) -> None:
    it = changed(config, "hapo.run_dir", "runs/it")
    prepare(it)
    assert it.trainer.v1.trainer_mode == "hapo_sync"
    assert it.hapo.run_dir.startswith("/")
    for method in ("grpo", "maxrl", "srft", "trapo"):
        settings.check(changed(config, "hapo.method", method))
    settings.check(changed(config, "hapo.gate", "own"))
    settings.check(changed(config, "hapo.gamma0", 0.5))


def test_masked_rows_need_a_normaliser_that_leaves_them_out(config) -> None:
    masked = changed(config, "hapo.truncated", "mask")
    key = "actor_rollout_ref.actor.loss_agg_mode"
    settings.check(changed(masked, key, "token-mean"))
    by_sequence = changed(masked, key, "seq-mean-token-mean")
    prompts = by_sequence.data.train_batch_size
    settings.check(changed(by_sequence, "actor_rollout_ref.actor.ppo_mini_batch_size", prompts))
    with pytest.raises(ValueError, match=r"hapo\.truncated: mask counts no sequence that is masked"):
        settings.check(changed(by_sequence, "actor_rollout_ref.actor.ppo_mini_batch_size", prompts // 2))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hapo.method", "hpt", "hapo.method: its teacher has a mean of its own"),
        ("hapo.method", "chord-mu", "hapo.method: its teacher has a mean of its own"),
        ("hapo.method", "sft", "hapo.method: imitation samples nothing"),
        ("hapo.method", "grop", "hapo.method: expected one of"),
        ("hapo.turn_off_epoch", None, "hapo.turn_off_epoch: expected the epoch"),
        ("hapo.turn_of_epoch", 1, "hapo.turn_of_epoch: expected one of advantage.group, annealing"),
        ("hapo.srft.weights", "entropy", r"hapo\.srft\.weights: weights by a step's entropy are not in verl's loss"),
        ("hapo.trapo.prefixes", True, r"hapo\.trapo\.prefixes: prefixes that the policy continues are no rollouts"),
        ("hapo.injection", "replay", r"hapo\.injection: the teacher's trajectory alone enters a group of verl"),
        ("hapo.success_limit", 4, "hapo: success limit for groups of 4: expected 0 to 3, got 4"),
        ("hapo.gamma0", 0.1, "hapo: threshold gamma0 for groups of 4: expected more than 1/6"),
        ("hapo.wrong", 1.0, "hapo.wrong: expected a finite reward below success_at = 1.0, got 1.0"),
        ("hapo.slot", "best", "hapo.slot: unknown variant `best`, expected one of"),
        ("hapo.teacher.weight", "two", "hapo.teacher.weight"),
        ("hapo.truncated", "drop", "hapo.truncated: expected wrong, mask or grade"),
        ("trainer.use_v1", False, "trainer.use_v1: expected true"),
        ("trainer.v1.trainer_mode", "colocate_async", "trainer.v1.trainer_mode: expected hapo_sync"),
        ("trainer.v1.trainer_mode", "separate_async", "trainer.v1.trainer_mode: expected hapo_sync"),
        ("algorithm.filter_groups.enable", True, "algorithm.filter_groups.enable: expected false"),
        ("algorithm.use_kl_in_reward", True, "algorithm.use_kl_in_reward: expected false"),
        ("algorithm.adv_estimator", "gae", "algorithm.adv_estimator: expected grpo"),
        ("algorithm.rollout_correction.bypass_mode", True, "algorithm.rollout_correction.bypass_mode: expected false"),
        ("actor_rollout_ref.rollout.n", 1, "actor_rollout_ref.rollout.n: expected a group of at least 2"),
        ("actor_rollout_ref.rollout.temperature", 0.6, "actor_rollout_ref.rollout.temperature: expected 1"),
        ("actor_rollout_ref.rollout.multi_turn.enable", True, "actor_rollout_ref.rollout.multi_turn.enable"),
        ("actor_rollout_ref.actor.loss_agg_mode", "mean", "actor_rollout_ref.actor.loss_agg_mode: expected one of"),
        ("actor_rollout_ref.actor.loss_scale_factor", None, "actor_rollout_ref.actor.loss_scale_factor: expected"),
        ("data.max_response_length", 3, "row 0: column hapo_teacher_ids: expected at most"),
    ],
)
def test_what_cannot_go_together_is_refused(config, key, value, message) -> None:
    with pytest.raises(ValueError, match=message):
        settings.check(changed(config, key, value))


def test_several_passes_with_the_advantage_as_weight_are_refused(config) -> None:
    it = changed(changed(config, "hapo.teacher.weight", "advantage"), "actor_rollout_ref.actor.ppo_epochs", 2)
    with pytest.raises(ValueError, match=r"ppo_epochs: expected 1 with teacher\.weight = advantage"):
        settings.check(it)


def test_data_without_teachers_or_with_verls_names_are_refused(config, tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    plain = small.write_data(tmp_path / "plain.parquet", teachers=False)
    it = changed(config, "data.train_files", str(plain))
    with pytest.raises(ValueError, match=r"plain\.parquet: expected a column hapo_teacher_ids"):
        settings.check(it)
    settings.check(changed(it, "hapo.method", "grpo"))
    for name in ("teacher_ids", "teacher_logprobs"):
        table = parquet.read_table(plain)
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(table.append_column(name, pa.array([[1]] * len(table))), path)
        with pytest.raises(ValueError, match=f"column {name}: verl's distillation takes it"):
            settings.check(changed(config, "data.train_files", str(path)))


def test_a_model_whose_files_do_not_name_the_end_of_an_answer_is_refused(config, tmp_path) -> None:
    """As a Qwen2.5 base: vLLM would stop at <|endoftext|>, and every rollout would run on to the limit."""
    base = small.ROOT / "testdata/fixtures/models/qwen-shaped"
    words = (
        r"expected one end token.*<\|im_end\|> \(2002\).*eos_token is <\|endoftext\|> \(2000\).*\[2000\] in generation"
    )
    for method in ("grpo", "luffy"):
        it = changed(changed(config, "hapo.method", method), "actor_rollout_ref.model.path", str(base))
        with pytest.raises(ValueError, match=words):
            prepare(it)
    ends.name(base, tmp_path / "named")
    it = changed(changed(config, "hapo.method", "grpo"), "actor_rollout_ref.model.path", str(tmp_path / "named"))
    prepare(it)
    # verl's saved config.json names it.
    assert it.actor_rollout_ref.model.override_config.eos_token_id == [2002, 2000]
    taught = changed(it, "hapo.method", "luffy")
    with pytest.raises(ValueError, match=r"row 0: column hapo_teacher_ids: expected .*\(2002\) last, .* got 383"):
        settings.check(taught)
    with pytest.raises(ValueError, match=r"actor_rollout_ref\.model\.path: cannot read the end token of '.*/nowhere'"):
        settings.check(changed(config, "actor_rollout_ref.model.path", str(tmp_path / "nowhere")))


@pytest.mark.parametrize("name", ["array.json", "lines.json", "lines.jsonl"])
def test_teachers_in_json_are_checked_as_in_parquet(config, tmp_path, name) -> None:
    import pyarrow.parquet as parquet

    whole = parquet.read_table(config.data.train_files).to_pylist()

    def check(rows, path=tmp_path / name) -> None:
        lines = [json.dumps(it) for it in rows]
        path.write_text(f"[{', '.join(lines)}]" if name == "array.json" else "\n".join(lines))
        settings.check(changed(config, "data.train_files", str(path)))

    check(whole)
    check([{**whole[0], settings.TEACHER: None}, *whole[1:]])
    with pytest.raises(ValueError, match=rf"{name}: expected a column hapo_teacher_ids"):
        check([{key: value for key, value in it.items() if key != settings.TEACHER} for it in whole])
    with pytest.raises(ValueError, match=rf"{name}: column teacher_ids: verl's distillation takes it"):
        check([*whole, {**whole[0], "teacher_ids": [1]}])
    with pytest.raises(ValueError, match=rf"{name}: row 8: column hapo_teacher_ids: expected at most .* got 13"):
        check([*whole, {**whole[0], settings.TEACHER: [1] * 13}])
    with pytest.raises(
        ValueError, match=rf"{name}: row 8: column hapo_teacher_ids: expected a list of tokens, got '7'"
    ):
        check([*whole, {**whole[0], settings.TEACHER: "7"}])
    with pytest.raises(ValueError, match=rf"{name}: row 8: expected an array of JSON objects, or one a line: got int"):
        check([*whole, 7])
    (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match=rf"{name}: row 0: expected an array of JSON objects"):
        settings.check(changed(config, "data.train_files", str(tmp_path / name)))


def test_data_that_cannot_be_checked_are_refused(config, tmp_path) -> None:
    (tmp_path / "data.csv").write_text("prompt\n")
    for file in (
        "hdfs://cluster/data.parquet", "https://example.org/data.jsonl", str(tmp_path / "*.parquet"),
        str(tmp_path / "data.csv"),
    ):  # fmt: skip
        it = changed(config, "data.train_files", [config.data.train_files, file])
        with pytest.raises(ValueError, match=f"data.train_files: expected a .* got '{re.escape(file)}': copy it here"):
            settings.check(it)
        settings.check(changed(it, "hapo.method", "grpo"))


def test_a_file_in_the_home_folder_is_checked(config, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    small.write_data(tmp_path / "plain.parquet", teachers=False)
    with pytest.raises(ValueError, match=r"plain\.parquet: expected a column hapo_teacher_ids"):
        settings.check(changed(config, "data.train_files", "~/plain.parquet"))


def test_what_is_not_installed_is_named(monkeypatch) -> None:
    found = settings.importlib.util.find_spec
    monkeypatch.setattr(
        settings.importlib.util, "find_spec", lambda name: None if name == "transfer_queue" else found(name)
    )
    with pytest.raises(ModuleNotFoundError, match=r"TransferQueue: expected it to be installed: pip install 'hapo\[ve"):
        settings.check_packages()


def test_a_version_that_no_test_runs_is_a_warning(monkeypatch) -> None:
    monkeypatch.setattr(settings.importlib.metadata, "version", lambda _: "0.10.0")
    with pytest.warns(UserWarning, match=r"verl 0\.10\.0 is not tested, expected 0\.9\.\*"):
        settings.check_packages()


def test_the_command_says_it_before_ray_starts(tmp_path) -> None:
    data = small.write_data(tmp_path / "data.parquet")
    options = [*small.options(data, tmp_path), "+hapo.turn_off_epoch=1.5", "algorithm.filter_groups.enable=true"]
    _, said, status = small.run("hapo.verl", options, tmp_path / "out", ok=False)
    assert status == 2
    assert "hapo.verl: algorithm.filter_groups.enable: expected false" in said
    assert "ray init" not in said


def test_verls_methods_look_as_they_did(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cpu_verl", None)
    from hapo.verl import trainer

    assert trainer.check_verl() == 10
    monkeypatch.setattr(trainer.PPOTrainer, "_balance_batch", lambda self, batch: None)
    with pytest.raises(RuntimeError, match=r"verl: PPOTrainer\._balance_batch takes \['self', 'batch'\], expected"):
        trainer.check_verl()
