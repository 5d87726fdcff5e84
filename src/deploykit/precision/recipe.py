"""Settings of INT8 quantization: what decides, together with the parent, what comes out."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from deploykit.base.artifact import Artifact
from deploykit.base.files import sha256_json
from deploykit.base.vocab import CalibrationMethod, Dialect
from deploykit.precision.calibrators import PERCENTILE
from deploykit.precision.fitness import LOWEST_SQNR_DB

RECIPE_VERSION = 2
"""Goes into the key of every artifact: raised whenever the same graph and data would be quantized in another way."""


@dataclass(frozen=True)
class Int8Recipe:
    """One way to quantize.

    Attributes:
        dialect: Who will run it.
        data: What the ranges are gathered from, as asked for.
        data_digest: SHA-256 over the samples as fed.
        samples: Samples asked for.
        method: How a histogram becomes a threshold.
        percentile: Of the percentile method.
        isa: Instruction set that the `ort-cpu` dialect is written for, from `isa.host_isa`; None for `tensorrt`.
        high_precision_dtype: What the part that does not become INT8 computes in: `fp32` or `fp16`.
        exclude_ops: Operators that stay float.
        exclude_nodes: Nodes that stay float.
    """

    dialect: Dialect
    data: str
    data_digest: str
    samples: int
    method: CalibrationMethod = CalibrationMethod.ENTROPY
    percentile: float = PERCENTILE
    isa: str | None = None
    high_precision_dtype: str = "fp32"
    exclude_ops: tuple[str, ...] = ()
    exclude_nodes: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """As the manifest keeps it."""
        settings = {**asdict(self), "dialect": str(self.dialect), "method": str(self.method)}
        return {"step": "quantize-int8", "version": RECIPE_VERSION, "lowest_sqnr_db": LOWEST_SQNR_DB, **settings}

    def key(self, parent: Artifact) -> str:
        """What the artifact cache looks the quantized form of a parent up by."""
        return sha256_json({"parent": parent.digest, "recipe": self.document()})
