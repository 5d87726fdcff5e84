"""State and readings of the device in hand: Jetson boards, NVIDIA GPUs and MIG slices, the host's CPU.

Every probe takes the root of a file tree, so that a snapshot of a machine replays through the code that reads a live
one. `device.device_state` reads everything once, `check.check` holds it against a target, and `sampling.PowerSampler`
reads power and clocks beside a run.
"""
