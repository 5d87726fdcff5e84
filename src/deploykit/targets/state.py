"""What a machine says of itself at one moment: the counterpart of a target, which says what it should be.

Probes fill these records, `match` compares them with a target. A reading that the machine does not give is None, never
0, and its reason stands in `unavailable` under the field's name.

Version history of the JSON form:
    1  first
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

STATE_VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NvpMode(_Record):
    """One power mode as this board's own nvpmodel.conf defines it.

    Attributes:
        id: nvpmodel's number.
        name: As in the file: `MODE_30W`.
        settings: `<PARAM> <ARG>` → value as written, `GPU MAX_FREQ` → `612000000`; CPU clocks in kHz, others in Hz.
    """

    id: int
    name: str
    settings: dict[str, str]


class Clock(_Record):
    """One clock of a board, MHz.

    Attributes:
        now_mhz: What it runs at.
        floor_mhz: The least that the governor may choose.
        cap_mhz: The most that the governor may choose.
        ceiling_mhz: The most that the hardware can: the end of its frequency table.
        steps_mhz: The frequency table, rising; empty where it is not told.
    """

    now_mhz: float | None = None
    floor_mhz: float | None = None
    cap_mhz: float | None = None
    ceiling_mhz: float | None = None
    steps_mhz: tuple[float, ...] = ()

    @property
    def locked(self) -> bool | None:
        """Whether floor and cap are one, as jetson_clocks makes them; None where either is not told."""
        if self.floor_mhz is None or self.cap_mhz is None:
            return None
        return self.floor_mhz >= self.cap_mhz


class PowerRails(_Record):
    """What the board's power monitors read.

    Attributes:
        rails_w: Rail → W.
        total_w: Power of the whole module; None where no rail or sum is known to be it.
        total_is: Which rails make up the total.
        unreadable: Rails that are there and cannot be read.
    """

    rails_w: dict[str, float] = {}
    total_w: float | None = None
    total_is: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()


class JetsonState(_Record):
    """A Jetson.

    Attributes:
        board_id: Part number of the module, `p3701-0005`: what decides which device this is.
        board_id_from: The file that says so.
        model: The device tree's model text: a hint only, since carrier makers write their own.
        chip: `tegra234`.
        variant: `t4000` where the boot configuration says that a Thor module is the smaller one.
        l4t: Jetson Linux version, `36.4.3`.
        jetpack: The JetPack release that carries it, where known.
        conf_file: File that /etc/nvpmodel.conf links to.
        conf_fault: Why the file gives no modes.
        modes: Every power mode that the file defines.
        default_mode_id: The mode that holds before the first switch.
        saved_mode_id: What /var/lib/nvpmodel/status says; None where it is absent or unreadable.
        mode_id: The mode that the board says it is in; None where that cannot be known.
        cpus: Numbers of all CPUs.
        cpus_online: Numbers of those that are on.
        tpc_mask: Live power gating mask of the GPU: each set bit is one TPC (2 SMs) off.
        tpc_total: TPCs of the chip.
        live: `<PARAM> <ARG>` of nvpmodel.conf → what the kernel's file holds now.
        cpu: Clock of the fastest CPU cluster that is on.
        gpu: Clock of the GPU.
        emc: Clock of the memory.
        dla: Clocks of the DLA cores by name.
        clocks_locked: Whether jetson_clocks holds the GPU and every CPU that is on; None where not told.
        power: Power monitors.
        overcurrent_events: Counter name → events since boot.
        fan: Fan file → its value.
    """

    board_id: str | None = None
    board_id_from: str | None = None
    model: str | None = None
    compatible: tuple[str, ...] = ()
    chip: str | None = None
    variant: str | None = None
    l4t: str | None = None
    jetpack: str | None = None
    conf_file: str | None = None
    conf_fault: str | None = None
    modes: tuple[NvpMode, ...] = ()
    default_mode_id: int | None = None
    saved_mode_id: int | None = None
    mode_id: int | None = None
    cpus: tuple[int, ...] = ()
    cpus_online: tuple[int, ...] = ()
    tpc_mask: int | None = None
    tpc_total: int | None = None
    live: dict[str, str] = {}
    cpu: Clock = Clock()
    gpu: Clock = Clock()
    emc: Clock = Clock()
    dla: dict[str, Clock] = {}
    clocks_locked: bool | None = None
    power: PowerRails = PowerRails()
    overcurrent_events: dict[str, int] = {}
    fan: dict[str, int] = {}
    unavailable: dict[str, str] = {}

    @property
    def mode(self) -> NvpMode | None:
        """The mode that the board says it is in."""
        return next((mode for mode in self.modes if mode.id == self.mode_id), None)


class MigDevice(_Record):
    """One slice of a GPU.

    Attributes:
        uuid: What CUDA_VISIBLE_DEVICES takes: `MIG-…`.
        profile: `1g.10gb`; with a compute instance smaller than its GPU instance `1c.2g.20gb`.
        gpu_instance: Number of the GPU instance.
        compute_instance: Number of the compute instance in it.
        sm_count: Multiprocessors.
        memory_bytes: Memory of the GPU instance.
        processes: Process ids that use it.
    """

    uuid: str | None
    profile: str | None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    processes: tuple[int, ...] | None = None
    unavailable: dict[str, str] = {}


class GpuState(_Record):
    """One GPU as NVML describes it.

    Attributes:
        index: NVML's number: by PCI bus, which need not be CUDA's.
        throttle_reasons: Why the clocks are below what was asked, in NVML's words; empty: nothing holds them.
        processes: Process ids that compute on it, as the host counts them.
        mig_enabled: Whether it is sliced; None where the GPU cannot be.
        mig_pending: Whether it will be after a reset.
        mig_devices: Its slices.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    compute_capability: str | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    sm_clock_application_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization: float | None = None
    processes: tuple[int, ...] | None = None
    persistence: bool | None = None
    ecc: bool | None = None
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    mig_devices: tuple[MigDevice, ...] = ()
    unavailable: dict[str, str] = {}


class NvmlState(_Record):
    """What the NVIDIA driver's management library says.

    Attributes:
        fault: Why it says nothing: no library, no driver, no permission.
        driver: `550.54.15`.
        cuda: Newest CUDA that the driver runs, `12.4`.
    """

    fault: str | None = None
    driver: str | None = None
    cuda: str | None = None
    gpus: tuple[GpuState, ...] = ()
    unavailable: dict[str, str] = {}


class CpuState(_Record):
    """The host's CPU.

    Attributes:
        cores: CPUs that the kernel has on.
        usable: CPUs that a process here may use: the container's quota counts.
        quota: The container's CPU quota, in CPUs.
        isa: Instructions that inference kernels choose by.
        governor: Of CPU 0.
        energy_readable: Whether the RAPL energy counter can be read.
    """

    model: str | None = None
    architecture: str | None = None
    cores: int | None = None
    usable: int | None = None
    quota: float | None = None
    isa: tuple[str, ...] = ()
    governor: str | None = None
    clock: Clock = Clock()
    energy_readable: bool = False
    unavailable: dict[str, str] = {}


class MemoryState(_Record):
    """Host memory, bytes, and pages swapped since boot."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    limit_bytes: int | None = None
    """The container's memory limit."""
    swap_used_bytes: int | None = None
    pages_swapped_in: int | None = None
    pages_swapped_out: int | None = None


class DeviceState(_Record):
    """The whole machine.

    Attributes:
        temperatures_c: Thermal zone → °C; zones of parts that are off are left out.
        container: How a container was recognised, or None.
    """

    version: Literal[1] = 1
    jetson: JetsonState | None = None
    nvml: NvmlState = NvmlState(fault="not asked")
    cpu: CpuState = CpuState()
    memory: MemoryState = MemoryState()
    temperatures_c: dict[str, float] = {}
    container: str | None = None
