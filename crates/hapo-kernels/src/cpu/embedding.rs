//! Rows in and out: the embedding in either layout, gather and scatter.

use super::pool::{Cpu, Shared};
use crate::shapes::EmbeddingLayout;

/// Rows of a task.
const ROWS: usize = 256;

/// `x [tokens, width]` = the tokens' embeddings.
pub(super) fn gather(
    cpu: &Cpu,
    layout: EmbeddingLayout,
    tokens: &[u32],
    embedding: &[f32],
    x: &mut [f32],
) {
    let width = match layout {
        EmbeddingLayout::Rows { width } => width,
        EmbeddingLayout::Columns { vocabulary } => embedding.len() / vocabulary,
    };
    assert_eq!(x.len(), tokens.len() * width, "x is [tokens, width]");
    cpu.for_blocks(x, ROWS * width, |first, x| {
        for (&token, x) in tokens[first / width..].iter().zip(x.chunks_exact_mut(width)) {
            let token = token as usize;
            match layout {
                EmbeddingLayout::Rows { .. } => {
                    x.copy_from_slice(&embedding[token * width..][..width]);
                }
                EmbeddingLayout::Columns { vocabulary } => {
                    for (x, row) in x.iter_mut().zip(embedding.chunks_exact(vocabulary)) {
                        *x = row[token];
                    }
                }
            }
        }
    });
}

pub(super) fn embed_grad(
    cpu: &Cpu,
    layout: EmbeddingLayout,
    tokens: &[u32],
    dx: &[f32],
    dembedding: &mut [f32],
) {
    match layout {
        EmbeddingLayout::Rows { width } => {
            for (&token, dx) in tokens.iter().zip(dx.chunks_exact(width)) {
                let at = token as usize * width;
                for (d, &g) in dembedding[at..at + width].iter_mut().zip(dx) {
                    *d += g;
                }
            }
        }
        EmbeddingLayout::Columns { vocabulary } => {
            // A task owns some features of every token, so the order per element is token order.
            const FEATURES: usize = 16;
            let width = dembedding.len() / vocabulary;
            let dembedding = Shared::new(dembedding);
            cpu.for_tasks(width.div_ceil(FEATURES), |task| {
                let first = task * FEATURES;
                let n = FEATURES.min(width - first);
                // SAFETY: blocks of features are disjoint rows.
                let rows = unsafe { dembedding.part(first * vocabulary, n * vocabulary) };
                for (&token, dx) in tokens.iter().zip(dx.chunks_exact(width)) {
                    for (i, &g) in dx[first..first + n].iter().enumerate() {
                        rows[i * vocabulary + token as usize] += g;
                    }
                }
            });
        }
    }
}

pub(super) fn scatter_rows(cpu: &Cpu, width: usize, rows: &[u32], y: &[f32], x: &mut [f32]) {
    assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "scattered rows ascend");
    assert_eq!(y.len(), rows.len() * width, "y is [rows, width]");
    let end = x.len() / width;
    let x = Shared::new(x);
    // Each row clears what is between it and the next.
    let clear = |from: usize, to: usize| {
        // SAFETY: the rows between two ascending ones belong to one of them.
        unsafe { x.part(from * width, (to - from) * width) }.fill(0.0);
    };
    clear(0, rows.first().map_or(end, |&row| row as usize));
    cpu.for_tasks(rows.len().div_ceil(ROWS), |task| {
        for i in task * ROWS..rows.len().min((task + 1) * ROWS) {
            let row = rows[i] as usize;
            // SAFETY: ascending rows are distinct.
            unsafe { x.part(row * width, width) }.copy_from_slice(&y[i * width..][..width]);
            clear(row + 1, rows.get(i + 1).map_or(end, |&next| next as usize));
        }
    });
}
