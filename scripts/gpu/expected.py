"""What training and decoding should take on a GPU: the tables of docs/cuda.md, by arithmetic. Nothing is measured.

python3 scripts/gpu/expected.py
"""

from dataclasses import dataclass

# An H200: what of its peaks a copy and large products reach (docs/LOG.md), what is assumed of the rest, and the peaks.
MEMORY = 4.1e12  # bytes a second
ISSUE, ISSUED = 132 * 4 * 1.98e9, 0.65  # warp instructions a second, and the share of them that a kernel issues
PRODUCTS = 760e12  # operations a second, bf16, at these shapes
ATTENTION, ATTENTION_GRAD = 200e12, 130e12
LAUNCH = 3.3e-6  # seconds from one kernel to the next
PEAK, PEAK_MEMORY = 989e12, 4.8e12
LOGIT_BYTES = 1 << 30  # held at once
BF16, F32 = 2, 4


@dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    head_dim: int
    vocabulary: int = 151_936
    tied: bool = True

    @property
    def q(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def layer_weights(self) -> int:
        return self.hidden * (2 * self.q + 2 * self.kv + 3 * self.ffn)

    @property
    def head_weights(self) -> int:
        return self.hidden * self.vocabulary


SHAPES = [
    Shape("0.5B", 24, 896, 14, 2, 4864, 64),
    Shape("3B", 36, 2048, 16, 2, 11008, 128),
    Shape("7B", 28, 3584, 28, 4, 18944, 128, 152_064, tied=False),
]


def forward_bytes(s: Shape) -> int:
    """Of the elementwise kernels of a layer, for a token."""
    norms = 2 * s.hidden * (F32 + BF16 + F32)  # read, the result, the stream's copy that the next product is added to
    heads = (s.q + 2 * s.kv) * (F32 + BF16)
    gated = s.ffn * 3 * BF16
    return norms + heads + gated


def backward_bytes(s: Shape) -> int:
    gated = s.ffn * 6 * BF16
    norms = 2 * s.hidden * (2 * F32 + 4 * F32)  # sums over rows; then what is read, and read and written
    heads = (s.q + s.kv) * 2 * BF16
    biases = (s.q + 2 * s.kv) * BF16
    return gated + norms + heads + biases


def added_bytes(s: Shape, forwards: int) -> int:
    """Of f32 results of products that are read and written where they are added to what is there, for a token."""
    residuals = forwards * 2 * s.hidden * 2 * F32
    gradients = s.hidden * F32 * (1 + 2 + 2 + 1 + 2)  # of q, k, v; of gate, up
    return residuals + gradients


def kept_bytes(s: Shape) -> int:
    """Of a layer's activations, for a token."""
    factors = 2 * (s.hidden + s.ffn) * BF16
    attention = 2 * (s.q + s.kv) * BF16 + s.heads * F32
    return factors + attention + (2 * s.hidden + 2) * F32


def training(s: Shape, sequences: int, length: int, forwards: int) -> tuple[list[tuple[str, float]], float]:
    """Parts of a batch of independent sequences, whose layers are computed once or twice, and the share of the peak."""
    tokens = sequences * length
    layers = 2 * tokens * s.layers * s.layer_weights
    head = 2 * tokens * s.head_weights
    attention = 4 * tokens * s.layers * s.q * length / 2
    chunks = -(-tokens * s.vocabulary * F32 // LOGIT_BYTES)
    logits = tokens * s.vocabulary
    # Written, read for the statistics; again, read, written as gradients, rounded: read and written.
    passes = logits * (2 * F32 + 3 * F32 + F32 + BF16)
    head_gradient = chunks * s.head_weights * 2 * F32
    elementwise = forwards * forward_bytes(s) + backward_bytes(s) + added_bytes(s, forwards)
    rounded = 2 * s.hidden * (F32 + BF16)
    parts = [
        ("products of the layers", (2 + forwards) * layers / PRODUCTS),
        ("elementwise kernels, sums that products are added to", tokens * s.layers * elementwise / MEMORY),
        ("products of the head", 4 * head / PRODUCTS),
        ("attention backward, seven products", 3.5 * attention / ATTENTION_GRAD),
        ("passes over logits, the gradient of the head's matrix", (passes + head_gradient) / MEMORY),
        ("attention forward", forwards * attention / ATTENTION),
        ("rounding gradients of the stream to bf16", tokens * s.layers * rounded / MEMORY),
    ]
    total = sum(it[1] for it in parts)
    return parts, 3 * (layers + head + attention) / total / PEAK


def update(s: Shape) -> float:
    """AdamW on weights in two halves, f32 gradient and moments, and the norms of both before it."""
    parameters = s.layers * s.layer_weights + s.head_weights * (1 if s.tied else 2)
    adamw = parameters * (F32 + 2 * F32 + 4 * F32)
    norms = parameters * (F32 + F32)
    return (adamw + norms) / MEMORY


LAUNCHES = 9
# Warp instructions of the decoding kernel for a position, a key/value head and up to 16 query heads, in the code for
# sm_90: 435 in the loop over 64 keys in the warp that adds exponentials up, about 300 in the seven others.
DECODE_INSTRUCTIONS = 41


def decoding(s: Shape, rows: int, context: int) -> tuple[list[tuple[str, float]], float]:
    """Parts of a step, and the share of it that a GPU at its peaks would take."""
    weights = s.layers * s.layer_weights + s.head_weights
    cache = rows * context * s.layers * 2 * s.kv * BF16
    blocks = s.kv_heads * -(-(s.heads // s.kv_heads) // 16)
    instructions = rows * context * s.layers * blocks * DECODE_INSTRUCTIONS
    floor = max(BF16 * weights / PEAK_MEMORY, 2 * rows * weights / PEAK) + cache / PEAK_MEMORY
    parts = [
        ("products, bf16", max(BF16 * weights / MEMORY, 2 * rows * weights / PRODUCTS)),
        ("attention, bf16", max(cache / MEMORY, instructions / (ISSUE * ISSUED))),
        (f"launches, {LAUNCHES} a layer", s.layers * LAUNCHES * LAUNCH),
        ("draws", rows * s.vocabulary * F32 * 5 / MEMORY),
    ]
    total = sum(it[1] for it in parts)
    return parts, floor / total


def kind_of(part: str) -> str:
    """The first word of a part in the singular: products, attention, or anything else."""
    return part.split()[0].rstrip("s") if part.split()[0] in ("products", "attention") else ""


def main() -> None:
    shape = SHAPES[1]
    kept = 8 * 1024 * kept_bytes(shape)
    both = [training(shape, 8, 1024, forwards) for forwards in (2, 1)]
    print("| training, 3B, bf16, 8 × 1,024 tokens, ms; activations kept of | one layer | all layers |\n|---|---|---|")
    for kind, of in [("products", "product"), ("attention", "attention"), ("passes over memory", "")]:
        seconds = [sum(p[1] for p in parts if kind_of(p[0]) == of) for parts, _ in both]
        print(f"| {kind} | {1e3 * seconds[0]:.0f} | {1e3 * seconds[1]:.0f} |")
    totals = [f"**{1e3 * sum(p[1] for p in parts):.0f}: {100 * share:.0f} % of the peak**" for parts, share in both]
    print(f"| **sum** | {totals[0]} | {totals[1]} |")
    print(f"| per update: AdamW, norms | {1e3 * update(shape):.0f} | {1e3 * update(shape):.0f} |")
    print(f"| GB of these activations | {kept / 1e9:.1f} | {shape.layers * kept / 1e9:.1f} |\n")

    columns = [(s, rows) for s in SHAPES[1:] for rows in (64, 256)]
    print(
        "| a step of decoding, bf16, 1,024 tokens of context, ms | "
        + " | ".join(f"{s.name}, {rows}" for s, rows in columns)
        + " |"
    )
    print("|---" * (1 + len(columns)) + "|")
    tables = [decoding(s, rows, 1024) for s, rows in columns]
    for i, (name, _) in enumerate(tables[0][0]):
        print(f"| {name} | " + " | ".join(f"{1e3 * it[0][i][1]:.1f}" for it in tables) + " |")
    print("| **sum** | " + " | ".join(f"{1e3 * sum(p[1] for p in it[0]):.1f}" for it in tables) + " |")
    print("| share of the floor | " + " | ".join(f"{100 * it[1]:.0f} %" for it in tables) + " |")


if __name__ == "__main__":
    main()
