//! Rows in and out: the embedding in either layout, gather and scatter.

use super::{Cpu, share::Shared};
use crate::device::EmbeddingLayout;

pub(super) fn embed(
    cpu: &Cpu,
    layout: EmbeddingLayout,
    tokens: &[u32],
    embedding: &[f32],
    x: &mut [f32],
) {
    match layout {
        EmbeddingLayout::Rows { width } => gather_rows(width, tokens, embedding, x),
        EmbeddingLayout::Columns { vocabulary } => {
            const ROWS: usize = 256;
            let width = embedding.len() / vocabulary;
            assert_eq!(x.len(), tokens.len() * width, "x is [tokens, width]");
            let x = Shared::new(x);
            cpu.for_tasks(tokens.len().div_ceil(ROWS), |task| {
                let first = task * ROWS;
                let tokens = &tokens[first..(first + ROWS).min(tokens.len())];
                // SAFETY: blocks of rows are disjoint.
                let x = unsafe { x.part(first * width, tokens.len() * width) };
                for (&token, x) in tokens.iter().zip(x.chunks_exact_mut(width)) {
                    for (x, row) in x.iter_mut().zip(embedding.chunks_exact(vocabulary)) {
                        *x = row[token as usize];
                    }
                }
            });
        }
    }
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

pub(super) fn gather_rows(width: usize, rows: &[u32], x: &[f32], y: &mut [f32]) {
    for (&row, y) in rows.iter().zip(y.chunks_exact_mut(width)) {
        let at = row as usize * width;
        y.copy_from_slice(&x[at..at + width]);
    }
}

pub(super) fn scatter_rows(width: usize, rows: &[u32], y: &[f32], x: &mut [f32]) {
    x.fill(0.0);
    for (&row, y) in rows.iter().zip(y.chunks_exact(width)) {
        let at = row as usize * width;
        x[at..at + width].copy_from_slice(y);
    }
}
