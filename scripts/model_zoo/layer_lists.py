"""Models that are written down as layer lists: transformers, recurrent nets, recommenders, generators.

Sizes are those of the public model descriptions named in each `source`; lengths of MLPerf's data sets are rounded
means. A wrong mean shifts every target alike, which the predictor's per-model offset takes up once the model was
measured anywhere.
"""

from __future__ import annotations

from collections.abc import Callable

from deploykit.predict.kernels import KernelGroup, Kind, ModelFeatures, merged


def gemm(
    rows: int, inner: int, columns: int, *, count: int = 1, steps: int = 1, extra: int = 0, ops: str = "MatMul+Add"
) -> KernelGroup:
    """A fully connected layer over `rows` tokens; `extra` more elements are read (a residual)."""
    return KernelGroup(
        Kind.GEMM, rows, columns, inner, inputs=rows * inner + extra, outputs=rows * columns,
        weights=inner * columns + columns, count=count, steps=steps, ops=ops,
    )  # fmt: skip


def norm(elements: int, count: int = 1, steps: int = 1) -> KernelGroup:
    return KernelGroup(Kind.NORM, inputs=elements, outputs=elements, count=count, steps=steps, ops="LayerNormalization")


def attention(tokens: int, heads: int, width: int, *, keys: int = 0, count: int = 1, steps: int = 1) -> KernelGroup:
    """softmax(QKᵀ)·V over `keys` keys (default: as many as tokens)."""
    keys = keys or tokens
    return KernelGroup(
        Kind.ATTENTION, tokens, keys, 2 * width, groups=heads, inputs=heads * width * (tokens + 2 * keys),
        outputs=heads * width * tokens, count=count, steps=steps, ops="Attention",
    )  # fmt: skip


def bert(
    model: str, layers: int, hidden: int, heads: int, tokens: int, source: str, *, p90_size: float = 1.0
) -> ModelFeatures:
    """An encoder with feed-forward width 4 × hidden and a question-answering head of two columns."""
    block = [
        gemm(tokens, hidden, 3 * hidden, count=layers),
        attention(tokens, heads, hidden // heads, count=layers),
        gemm(tokens, hidden, hidden, count=layers, extra=tokens * hidden),
        norm(tokens * hidden, count=2 * layers),
        gemm(tokens, hidden, 4 * hidden, count=layers, ops="MatMul+Add+Gelu"),
        gemm(tokens, 4 * hidden, hidden, count=layers, extra=tokens * hidden),
    ]
    embed = KernelGroup(Kind.GATHER, inputs=3 * tokens * hidden, outputs=tokens * hidden, ops="Gather")
    groups = merged([embed, norm(tokens * hidden), *block, gemm(tokens, hidden, 2)])
    return ModelFeatures(
        model,
        groups,
        3 * tokens,
        4.0,
        live_elements=6 * tokens * hidden,
        parameters=layers * 12 * hidden * hidden + 31_000 * hidden,
        source=source,
        dynamic=p90_size > 1.0,
        p90_size=p90_size,
    )


_BERT = "google-research/bert (arXiv 1810.04805): BERT-{}, hidden {}, {} layers, {} heads"
_SQUAD = (
    "; SQuAD v1.1 dev, about 165 tokens a sample on average (384 at most): the MLPerf harnesses skip the padding; "
    "p90 ÷ mean of SingleStream latencies on Xavier, where launches do not count: 1.45"
)


def bert_base(tokens: int, name: str) -> ModelFeatures:
    return bert(name, 12, 768, 12, tokens, _BERT.format("base", 768, 12, 12) + f"; {tokens} tokens")


def bert_large(tokens: int, name: str) -> ModelFeatures:
    return bert(name, 24, 1024, 16, tokens, _BERT.format("large", 1024, 24, 16) + f"; {tokens} tokens")


def bert_mlperf(name: str) -> ModelFeatures:
    return bert(name, 24, 1024, 16, 165, _BERT.format("large", 1024, 24, 16) + _SQUAD, p90_size=1.45)


def megatron_large(tokens: int, name: str) -> ModelFeatures:
    source = f"NVIDIA/TensorRT demo/BERT: Megatron-large, hidden 1024, 24 layers, 16 heads, 2:4 sparse; {tokens} tokens"
    return bert(name, 24, 1024, 16, tokens, source)


def lstm(inputs: int, hidden: int, steps: int) -> KernelGroup:
    return KernelGroup(
        Kind.RECURRENT, 1, 4 * hidden, inputs + hidden, inputs=inputs, outputs=hidden,
        weights=4 * hidden * (inputs + hidden + 2), steps=steps, ops="LSTM",
    )  # fmt: skip


def rnnt() -> ModelFeatures:
    frames, half, symbols = 240, 120, 220
    groups = [
        lstm(240, 1024, frames), lstm(1024, 1024, frames),
        lstm(2048, 1024, half), lstm(1024, 1024, half), lstm(1024, 1024, half),
        lstm(320, 320, symbols), lstm(320, 320, symbols),
        gemm(1, 1344, 512, steps=symbols, ops="Joint"), gemm(1, 512, 29, steps=symbols, ops="Joint"),
        KernelGroup(Kind.SELECT, inputs=29, outputs=1, steps=symbols, ops="ArgMax"),
    ]  # fmt: skip
    source = (
        "MLPerf Inference RNN-T (mlcommons/inference speech_recognition/rnnt): encoder LSTMs 2 + 3 of 1024, stacking "
        "2, prediction LSTMs 2 of 320, joint 512; LibriSpeech dev-clean, 7.2 s a sample on average (240 frames)"
    )
    return ModelFeatures("rnnt", merged(groups), 240 * 240, 2.0, 240 * 2048, 45_300_000, source, dynamic=True)


def dlrm(name: str, *, crossed: bool) -> ModelFeatures:
    """A sample of MLPerf's recommendation tasks is a query of 100 to 700 user-item pairs, 270 on average."""
    pairs, width, tables = 270, 128, 26
    lookups = 214 if crossed else tables
    bottom = [gemm(pairs, a, b, ops="Gemm+Relu") for a, b in ((13, 512), (512, 256), (256, 128))]
    flat = (tables + 1) * width
    if crossed:
        middle = [gemm(pairs, flat, 512, count=3), gemm(pairs, 512, flat, count=3, extra=2 * pairs * flat)]
        top_in = flat
    else:
        middle = [
            KernelGroup(
                Kind.ATTENTION, 27, 27, 128, groups=pairs, inputs=pairs * flat, outputs=pairs * 351, ops="MatMul+Gather"
            )
        ]
        top_in = 479
    top = [
        gemm(pairs, a, b, ops="Gemm+Relu") for a, b in ((top_in, 1024), (1024, 1024), (1024, 512), (512, 256), (256, 1))
    ]
    table = KernelGroup(
        Kind.GATHER, inputs=pairs * lookups * width, outputs=pairs * flat, weights=0, ops="EmbeddingBag"
    )
    version = (
        "DLRM-DCNv2, multi-hot Criteo, low-rank cross of 512 × 3" if crossed else "DLRM, Criteo 1TB, dot interaction"
    )
    source = (
        f"MLPerf Inference {version} (mlcommons/inference recommendation): bottom 13-512-256-128, top "
        f"1024-1024-512-256-1, {lookups} lookups of 128; the tables (some 100 GB) may lie in host memory: not counted"
    )
    return ModelFeatures(
        name,
        merged([*bottom, table, *middle, *top]),
        pairs * (13 + lookups),
        4.0,
        pairs * flat * 3,
        2_400_000 if not crossed else 16_100_000,
        source,
        dynamic=True,
    )


def gptj(name: str) -> ModelFeatures:
    prompt, new, beams, layers, hidden = 870, 90, 4, 28, 4096
    keys = prompt + new // 2

    def block(rows: int, steps: int) -> list[KernelGroup]:
        return [
            norm(rows * hidden, layers, steps),
            gemm(rows, hidden, 3 * hidden, count=layers, steps=steps),
            attention(rows, 16, 256, keys=keys if steps > 1 else rows, count=layers, steps=steps),
            gemm(rows, hidden, hidden, count=layers, steps=steps),
            gemm(rows, hidden, 4 * hidden, count=layers, steps=steps, ops="MatMul+Add+Gelu"),
            gemm(rows, 4 * hidden, hidden, count=layers, steps=steps, extra=2 * rows * hidden),
        ]

    head = gemm(beams, hidden, 50400, steps=new)
    source = (
        "EleutherAI GPT-J 6B: 28 layers, hidden 4096, 16 heads, vocabulary 50400; MLPerf Inference on CNN/DailyMail: "
        "about 870 prompt tokens and 90 new ones a sample on average, 4 beams; p90 ÷ mean of SingleStream "
        "latencies: 1.48"
    )
    return ModelFeatures(
        name,
        merged([*block(prompt, 1), *block(beams, new), head]),
        prompt,
        4.0,
        prompt * hidden * 8,
        6_053_381_344,
        source,
        dynamic=True,
        p90_size=1.48,
    )


def stable_diffusion_xl() -> ModelFeatures:
    """Coarse: the U-Net's transformer and convolution work by level, run 20 times for two branches, and the decoder."""
    runs, branches = 20, 2

    def conv(pixels: int, channels: int, out: int, count: int, steps: int = runs * branches) -> KernelGroup:
        return KernelGroup(
            Kind.CONV, pixels, out, channels * 9, inputs=pixels * channels, outputs=pixels * out,
            weights=channels * out * 9, steps=steps, count=count, ops="Conv+Silu",
        )  # fmt: skip

    def transformer(tokens: int, hidden: int, count: int) -> list[KernelGroup]:
        steps = runs * branches
        return [
            norm(tokens * hidden, 3 * count, steps),
            gemm(tokens, hidden, 3 * hidden, count=count, steps=steps),
            attention(tokens, hidden // 64, 64, count=count, steps=steps),
            gemm(tokens, hidden, hidden, count=3 * count, steps=steps),
            attention(tokens, hidden // 64, 64, keys=77, count=count, steps=steps),
            gemm(tokens, hidden, 8 * hidden, count=count, steps=steps, ops="MatMul+Geglu"),
            gemm(tokens, 4 * hidden, hidden, count=count, steps=steps),
        ]

    unet = [
        conv(16384, 320, 320, 11), conv(16384, 640, 320, 3), conv(4096, 640, 640, 8), conv(4096, 1280, 640, 3),
        conv(1024, 1280, 1280, 9), conv(1024, 2560, 1280, 3),
        *transformer(4096, 640, 10), *transformer(1024, 1280, 60),
    ]  # fmt: skip
    decoder = [
        conv(16384, 512, 512, 10, 1),
        conv(65536, 512, 512, 7, 1),
        conv(262144, 256, 256, 7, 1),
        conv(1048576, 128, 128, 7, 1),
    ]
    source = (
        "Stable Diffusion XL base 1.0 (arXiv 2307.01952), 1024×1024, 20 steps with guidance as in MLPerf Inference; "
        "coarse: convolutions and transformer blocks by level, image decoder, text encoders left out"
    )
    return ModelFeatures(
        "stable-diffusion-xl", merged([*unet, *decoder]), 77 * 2, 4.0, 1024 * 1024 * 128 * 2, 3_500_000_000, source
    )


ALL: dict[str, Callable[[], ModelFeatures]] = {
    "bert-large-99": lambda: bert_mlperf("bert-large-99"),
    "bert-base-seq128": lambda: bert_base(128, "bert-base-seq128"),
    "bert-base-seq384": lambda: bert_base(384, "bert-base-seq384"),
    "bert-large-seq128": lambda: bert_large(128, "bert-large-seq128"),
    "bert-large-seq384": lambda: bert_large(384, "bert-large-seq384"),
    "megatron-large-sparse-seq128": lambda: megatron_large(128, "megatron-large-sparse-seq128"),
    "megatron-large-sparse-seq384": lambda: megatron_large(384, "megatron-large-sparse-seq384"),
    "rnnt": rnnt,
    "dlrm": lambda: dlrm("dlrm", crossed=False),
    "dlrm-v2": lambda: dlrm("dlrm-v2", crossed=True),
    "gptj-6b": lambda: gptj("gptj-6b"),
    "stable-diffusion-xl": stable_diffusion_xl,
}
