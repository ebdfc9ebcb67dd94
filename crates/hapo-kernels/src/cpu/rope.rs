//! Rotary position embedding, in place; the gradient is the rotation back.

use super::pool::Cpu;
use crate::lanes::{fma, kernel};
use crate::shapes::AttentionShape;

const ROWS: usize = 64;

pub(super) fn rope(
    cpu: &Cpu,
    shape: AttentionShape,
    direction: f32,
    angles: &[f32],
    positions: &[u32],
    x: &mut [f32],
) {
    if positions.is_empty() {
        return;
    }
    let rows = positions.len();
    let width = x.len() / rows;
    assert!(
        width * rows == x.len() && width.is_multiple_of(shape.head_dim),
        "x is [positions, heads · head_dim]"
    );
    cpu.for_blocks(x, ROWS * width, |first, x| {
        for (position, x) in positions[first / width..].iter().zip(x.chunks_exact_mut(width)) {
            let at = *position as usize * shape.rotated;
            rotate(&angles[at..at + shape.rotated], direction, shape.head_dim, x);
        }
    });
}

kernel! {
    fn rotate<V>(angles: &[f32], direction: f32, width: usize, x: &mut [f32]) {
        let half = angles.len() / 2;
        let (cosines, sines) = angles.split_at(half);
        for head in x.chunks_exact_mut(width) {
            let (low, high) = head.split_at_mut(half);
            for (((a, b), &cos), &sin) in low.iter_mut().zip(high).zip(cosines).zip(sines) {
                let sin = sin * direction;
                let (u, v) = (*a, *b);
                *a = fma::<V>(u, cos, -(v * sin));
                *b = fma::<V>(v, cos, u * sin);
            }
        }
    }
}
