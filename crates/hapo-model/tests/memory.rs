//! The formulas of memory and arithmetic against what a tape holds and the model's matrices.

use hapo_kernels::{Buffer, CPU_LOGIT_BYTES, Cpu};
use hapo_model::memory::{ActivationFormats, forward_flops, parameter_bytes, tape_bytes};
use hapo_model::{ActivationCheckpointing, Gradients, PackedBatch, Tape};
use hapo_testing::model_dir;

#[test]
fn the_formulas_are_what_the_tape_holds() {
    for name in ["tiny-qwen2", "tiny-qwen3", "tiny-llama3"] {
        let loaded = hapo_model::load(&model_dir(name), Cpu::new(1).unwrap(), |_| 128).unwrap();
        let model = loaded.model;
        let mut gradients = Gradients::new(&model).unwrap();
        assert_eq!(parameter_bytes(model.config()), 4 * gradients.buf().len() as u64);
        for checkpointing in [ActivationCheckpointing::None, ActivationCheckpointing::Layers] {
            let mut tape = Tape::new(checkpointing);
            let mut batch = PackedBatch::default();
            let prompt = batch.push(&[1, 2, 3, 4, 5], None);
            for response in [&[6, 7, 8][..], &[9; 20]] {
                batch.push_response(prompt, response, 1.0);
            }
            let outputs = model.forward(&batch, &mut tape).unwrap();
            let slopes = vec![1.0; outputs.log_probs.len()];
            model.backward(&mut tape, &slopes, &slopes, &mut gradients).unwrap();
            // The prompt's last row predicts the first token of both responses.
            let (rows, targets) = (5 + 2 + 19, 3 + 20);
            let predicted = tape_bytes(
                (model.config(), ActivationFormats::default()),
                rows,
                targets - 1,
                targets,
                checkpointing,
                0,
                CPU_LOGIT_BYTES,
            );
            assert_eq!(predicted, tape.bytes(), "{name} {checkpointing:?}");
        }
    }
}

#[test]
fn flops_are_six_per_parameter_and_token_where_the_context_is_short() {
    let model =
        hapo_model::load(&model_dir("tiny-qwen2"), Cpu::new(1).unwrap(), |_| 128).unwrap().model;
    let config = model.config();
    let matrices: usize = config
        .tensors()
        .iter()
        .filter(|it| it.shape.len() == 2)
        .map(|it| it.shape.iter().product::<usize>())
        .sum();
    // An embedding that is not the head too is looked up, not multiplied.
    let lookup = if config.tied { 0 } else { config.vocab_size * config.hidden };
    assert_eq!(forward_flops(config, 10.0, 10.0, 0.0), 2.0 * 10.0 * (matrices - lookup) as f64);
    let by_attention =
        forward_flops(config, 10.0, 10.0, 7.0) - forward_flops(config, 10.0, 10.0, 0.0);
    let wide = config.heads * config.head_dim;
    assert_eq!(by_attention, (4 * 10 * config.layers * wide * 7) as f64);
}
