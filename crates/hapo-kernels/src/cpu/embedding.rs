//! Rows in and out: the embedding in either layout, gather and scatter.

use super::pool::Cpu;
use super::share::Shared;
use crate::shapes::EmbeddingLayout;

pub(super) fn gather(
    cpu: &Cpu,
    layout: EmbeddingLayout,
    tokens: &[u32],
    embedding: &[f32],
    x: &mut [f32],
) {
    match layout {
        EmbeddingLayout::Rows { width } => gather_rows(cpu, width, tokens, embedding, x),
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

fn gather_rows(cpu: &Cpu, width: usize, rows: &[u32], x: &[f32], y: &mut [f32]) {
    assert_eq!(y.len(), rows.len() * width, "y is [rows, width]");
    let y = Shared::new(y);
    for_blocks(cpu, rows, |first, rows| {
        // SAFETY: blocks of rows are disjoint.
        let y = unsafe { y.part(first * width, rows.len() * width) };
        for (&row, y) in rows.iter().zip(y.chunks_exact_mut(width)) {
            let at = row as usize * width;
            y.copy_from_slice(&x[at..at + width]);
        }
    });
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
    for_blocks(cpu, rows, |first, block| {
        for (i, &row) in block.iter().enumerate() {
            let row = row as usize;
            // SAFETY: ascending rows are distinct.
            unsafe { x.part(row * width, width) }
                .copy_from_slice(&y[(first + i) * width..][..width]);
            clear(row + 1, rows.get(first + i + 1).map_or(end, |&next| next as usize));
        }
    });
}

fn for_blocks(cpu: &Cpu, rows: &[u32], work: impl Fn(usize, &[u32]) + Sync + Send) {
    const ROWS: usize = 256;
    cpu.for_tasks(rows.len().div_ceil(ROWS), |task| {
        let first = task * ROWS;
        work(first, &rows[first..(first + ROWS).min(rows.len())]);
    });
}
