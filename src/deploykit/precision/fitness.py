"""Can INT8 hold a layer's input? Signal to noise as the layer's own weights see it, from calibration alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LOWEST_SQNR_DB = 15.0
"""Below this a layer's input stays float: 15 dB alone take the output's cosine to 0.984. A healthy layer has 25."""


def input_sqnr_db(channel_energy: Array, weight_energy: Array, values: int, scale: float) -> float | None:
    """Signal to rounding noise at a layer's output, due to rounding its input to one scale.

    One scale serves all channels of an activation, so a channel whose values lie far below the largest ones is rounded
    to little or nothing. Whether that matters is for the layer's weights to say: where they even out what the channels
    differ by, small channels count as much as large ones. Taking rounding errors as uniform and independent (Widrow
    and Kollár, "Quantization Noise", 2008, chapter 5) with variance step²/12, and a channel's error as no larger than
    the channel itself:

        signal = Σ_c |w_c|² · E[x_c²],   noise = Σ_c |w_c|² · min(step²/12, E[x_c²])

    Clipping is left out: it is the calibration method's choice.

    Args:
        channel_energy: Sum of squares of each channel of the activation, float64 [C].
        weight_energy: Sum of squared weights that meet each channel, float64 [C].
        values: Values of the activation, all channels together.
        scale: Step of the grid.

    Returns:
        dB; None where the two do not match or there is no signal.
    """
    if channel_energy.shape != weight_energy.shape or values == 0:
        return None
    power = channel_energy * channel_energy.size / values
    signal = float(np.dot(weight_energy, power))
    noise = float(np.dot(weight_energy, np.minimum(scale * scale / 12, power)))
    if not (math.isfinite(signal) and signal > 0 and noise > 0):
        return None
    return 10 * math.log10(signal / noise)
