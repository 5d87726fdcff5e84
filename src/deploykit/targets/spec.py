"""What a target is: one strict schema for the files in `targets/` and for a user's own.

One file a device. A target reference `<device>[@<power mode>][:<MIG profile>]` picks one operating point of it.
Every figure carries its source: `sources` names them once, each block points at one by key.

Version history of the file format:
    1  first
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from deploykit.base.errors import UsageError
from deploykit.targets.ref import MODE_PATTERN, NAME_PATTERN, PROFILE_PATTERN, parse_ref

FORMAT_VERSION = 1
DeviceKind = Literal["jetson", "desktop", "workstation", "datacenter", "host"]

# Names that a reference can spell; it is read in lower case, so another spelling could never be reached.
Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
ModeName = Annotated[str, StringConstraints(pattern=f"^{MODE_PATTERN}$")]
ProfileName = Annotated[str, StringConstraints(pattern=f"^{PROFILE_PATTERN}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class Source(_Strict):
    """Where figures come from."""

    citation: str
    """URL, repository path with commit, or document title."""
    trust: Literal["high", "good", "medium", "unverified"]
    """How far it was checked; `unverified` figures are flagged wherever they decide something."""
    note: str | None = None
    """What a reader should know of it."""


class Silicon(_Strict):
    """The chip. Peaks are dense (no structured sparsity), one multiply-add = 2 operations."""

    source: str
    """Key in `sources`."""
    architecture: str
    """Ampere, Ada, Hopper, ..."""
    compute_capability: str | None = None
    """CUDA compute capability, like `8.7`; none for a CPU."""
    sm_count: int | None = Field(default=None, ge=1)
    """Streaming multiprocessors."""
    cuda_cores: int | None = Field(default=None, ge=1)
    tensor_cores: int | None = Field(default=None, ge=0)
    boost_mhz: float | None = Field(default=None, gt=0)
    """Boost clock, MHz."""
    tensor_clock_mhz: float | None = Field(default=None, gt=0)
    """Clock that the peaks were computed at, MHz."""
    fp32_tflops: float | None = Field(default=None, gt=0)
    tf32_tflops: float | None = Field(default=None, gt=0)
    fp16_tflops: float | None = Field(default=None, gt=0)
    """Tensor peak with FP16 accumulation, TFLOPS."""
    fp16_fp32acc_tflops: float | None = Field(default=None, gt=0)
    """Tensor peak with FP32 accumulation, TFLOPS (half on GeForce)."""
    bf16_tflops: float | None = Field(default=None, gt=0)
    int8_tops: float | None = Field(default=None, gt=0)
    fp8_tflops: float | None = Field(default=None, gt=0)
    fp4_tflops: float | None = Field(default=None, gt=0)
    int4_tops: float | None = Field(default=None, gt=0)
    l2_mb: float | None = Field(default=None, gt=0)
    """L2 cache, MB."""
    sparsity: bool = False
    """Whether 2:4 structured sparsity doubles the tensor peaks."""
    peak_basis: str | None = None
    """`datasheet`, or how the peaks were derived."""
    dla_cores: int = Field(default=0, ge=0)
    dla_int8_tops: float | None = Field(default=None, gt=0)
    """Dense INT8 peak of all DLA cores together, TOPS."""
    note: str | None = None


class Memory(_Strict):
    """Memory that a model can use."""

    source: str
    size_gb: float = Field(gt=0)
    """As sold: GB."""
    kind: str | None = None
    """GDDR6X, HBM3, LPDDR5."""
    bus_bits: int | None = Field(default=None, ge=1)
    bandwidth_gbs: float | None = Field(default=None, gt=0)
    """10^9 bytes/s."""
    shared: bool = False
    """Shared with the CPU and the operating system, as on a Jetson."""


class Power(_Strict):
    """Power limit."""

    source: str
    tdp_w: float = Field(gt=0)
    """Board or module limit, W."""
    covers: Literal["board", "module", "chip"] = "board"


class PowerMode(_Strict):
    """One nvpmodel mode: what NVIDIA's board support files cap."""

    source: str
    id: int | None = Field(default=None, ge=0)
    """nvpmodel's number; differs between modules and releases."""
    nvpmodel_name: str
    """As in /etc/nvpmodel.conf: `MODE_30W`."""
    default: bool = False
    budget_w: float | None = Field(default=None, gt=0)
    """From the mode's name; None for MAXN, which has no cap."""
    l4t: str | None = None
    """Jetson Linux release of the file, like `36.x`."""
    online_cpus: int | None = Field(default=None, ge=1)
    cpu_mhz: float | None = Field(default=None, gt=0)
    sm_count: int | None = Field(default=None, ge=1)
    gpu_mhz: float | None = Field(default=None, gt=0)
    dla_cores: int | None = Field(default=None, ge=0)
    dla_mhz: float | None = Field(default=None, gt=0)
    emc_mhz: float | None = Field(default=None, gt=0)
    bandwidth_gbs: float | None = Field(default=None, gt=0)
    int8_tops: float | None = Field(default=None, gt=0)
    """Dense INT8 peak of the GPU at this mode's SMs and clock."""
    dla_int8_tops: float | None = Field(default=None, gt=0)
    """Dense INT8 peak of the DLA cores at this mode's clock."""
    uncapped: tuple[str, ...] = ()
    """Fields above where the file sets no cap and the module's ceiling stands."""
    note: str | None = None


class MigProfile(_Strict):
    """One GPU instance profile."""

    source: str
    compute_slices: int = Field(ge=1)
    compute_slices_total: int = Field(ge=1)
    memory_slices: int = Field(ge=1)
    memory_slices_total: int = Field(ge=1)
    sm_count: int | None = Field(default=None, ge=1)
    memory_gb: float = Field(gt=0)
    """Nominal, as in the profile's name."""
    memory_gib_usable: float | None = Field(default=None, gt=0)
    bandwidth_fraction: float = Field(gt=0, le=1)
    """Share of DRAM bandwidth: memory slices ÷ total."""
    max_instances: int = Field(ge=1)
    """How many fit on one card."""
    profile_id: int | None = None
    k8s_resource: str | None = None
    media_extensions: bool = False
    note: str | None = None


class PowerReading(_Strict):
    """Power seen on a real device: what one rail, or the module, drew under a load."""

    source: str
    mode: str | None = None
    """Key in `power_modes`; none where the source does not say."""
    load: str
    """What ran, as the source says it: `GPU stress`, `near idle`; `limit` for the most that the module may draw."""
    rail: str
    """Power rail (`VDD_GPU_SOC`), or `module`."""
    power_w: float = Field(gt=0)
    note: str | None = None


class TargetFile(_Strict):
    """A device and all its operating points: one file in `targets/`."""

    version: Literal[1]
    """Format of this file."""
    device: Name
    """Slug: the file's name without `.yaml`."""
    name: str
    """As sold."""
    kind: DeviceKind
    family: str | None = None
    """Short family name that aliases are made of: `orin`, `orin-nx`."""
    silicon: Silicon
    memory: Memory | None = None
    power: Power | None = None
    cpu: str | None = None
    cpu_count: int | None = Field(default=None, ge=1)
    """CPUs that a process may use."""
    pcie: str | None = None
    nvlink_gbs: float | None = Field(default=None, gt=0)
    release_year: int | None = Field(default=None, ge=2010, le=2100)
    module_skus: tuple[str, ...] = ()
    """Jetson part numbers that are this device: `p3701-0005`."""
    power_modes: dict[ModeName, PowerMode] = {}
    """Our name of the mode (`30w`, `maxn`) → what it caps."""
    default_mode: str | None = None
    """Key in `power_modes` that a reference without `@` means."""
    mig_profiles: dict[ProfileName, MigProfile] = {}
    """Profile name (`1g.10gb`) → its share."""
    power_readings: tuple[PowerReading, ...] = ()
    aliases: dict[Name, str] = {}
    """Other name → reference to this device: `orin-30w: orin-agx-64gb@30w`."""
    spellings: tuple[str, ...] = ()
    """Ways that published tables and price lists write this device."""
    published_as: tuple[str, ...] = ()
    """Slugs of published rows that describe this device although they leave the variant open."""
    price_keys: tuple[str, ...] = ()
    """`gpu` values of the price tables that are this device."""
    unverified: tuple[str, ...] = ()
    """Figures without a source text, as paths in this file: `silicon/fp16_tflops`, `mig_profiles/1g.12gb/sm_count`."""
    sources: dict[str, Source]
    notes: tuple[str, ...] = ()
    """Contradictions between sources and other caveats."""

    @model_validator(mode="after")
    def _refers_to_itself_rightly(self) -> TargetFile:
        self._check_sources()
        self._check_modes()
        self._check_aliases()
        for path in self.unverified:
            _figure_at(self, path)
        return self

    def blocks(self) -> list[Silicon | Memory | Power | PowerMode | MigProfile | PowerReading]:
        """Everything that cites a source."""
        single = [block for block in (self.silicon, self.memory, self.power) if block is not None]
        return [*single, *self.power_modes.values(), *self.mig_profiles.values(), *self.power_readings]

    def _check_sources(self) -> None:
        for block in self.blocks():
            if block.source not in self.sources:
                raise ValueError(f"source {block.source!r} is not among the file's sources")

    def _check_modes(self) -> None:
        if self.power_modes and self.default_mode is None:
            raise ValueError("a device with power modes needs a default_mode")
        if self.power_modes and self.mig_profiles:
            raise ValueError("power modes and MIG profiles in one file: no figures are known for a slice in a mode")
        for mode in (self.default_mode, *(reading.mode for reading in self.power_readings)):
            if mode is not None and mode not in self.power_modes:
                raise ValueError(f"mode {mode!r} is not among the power modes")

    def _check_aliases(self) -> None:
        for alias, text in self.aliases.items():
            try:
                ref = parse_ref(text)
            except UsageError as error:
                raise ValueError(f"alias {alias!r}: {error}") from error
            known = (ref.mode is None or ref.mode in self.power_modes) and (
                ref.profile is None or ref.profile in self.mig_profiles
            )
            if ref.device != self.device or not known:
                raise ValueError(f"alias {alias!r} means {text!r}, which is no operating point of {self.device}")


def _figure_at(file: TargetFile, path: str) -> None:
    """Walk a path like `silicon/fp16_tflops`; refuse one that leads to no figure."""
    value: Any = file
    for key in path.split("/"):
        value = value.get(key) if isinstance(value, dict) else getattr(value, key, None)
    if not isinstance(value, int | float):
        raise ValueError(f"unverified names {path!r}, which is no figure of this file")


def field_names() -> list[str]:
    """Every field that a target file can have, at any depth."""
    models = (TargetFile, Silicon, Memory, Power, PowerMode, MigProfile, PowerReading, Source)
    return sorted({name for model in models for name in model.model_fields})


class TargetSpec(_Strict):
    """One operating point of a device: what a reference resolves to, with the figures that hold there.

    A power mode's clocks, SMs and bandwidth, or a MIG profile's share, are already applied.
    """

    ref: str
    """Canonical reference: `orin-agx-64gb@30w`, `a100-sxm4-80gb:1g.10gb`."""
    device: TargetFile
    mode_name: str | None = None
    profile_name: str | None = None
    sm_count: int | None
    gpu_mhz: float | None
    bandwidth_gbs: float | None
    memory_gb: float | None
    int8_tops: float | None
    fp16_tflops: float | None
    fp32_tflops: float | None
    dla_int8_tops: float | None
    power_w: float | None
    """Limit at this point: the mode's budget, the card's TDP; a slice's share is for the cost model to divide."""
    share_of_device: float = Field(default=1.0, gt=0, le=1)
    """Largest of the compute and memory shares of a MIG slice; 1 for a whole device."""

    @property
    def mode(self) -> PowerMode | None:
        """The power mode, where the reference names one or the device has a default."""
        return self.device.power_modes[self.mode_name] if self.mode_name else None

    @property
    def profile(self) -> MigProfile | None:
        """The MIG profile, where the reference names one."""
        return self.device.mig_profiles[self.profile_name] if self.profile_name else None

    @property
    def unverified(self) -> tuple[str, ...]:
        """Paths of the device's unverified figures, less those of other modes and slices."""
        here = (f"power_modes/{self.mode_name}/", f"mig_profiles/{self.profile_name}/")
        return tuple(
            path
            for path in self.device.unverified
            if not path.startswith(("power_modes/", "mig_profiles/")) or path.startswith(here)
        )
