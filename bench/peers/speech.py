"""Sound that is made like speech, for detectors of speech: no recordings are needed."""

import numpy as np

VOWELS_HZ = [(730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410), (530, 1840, 2480), (300, 870, 2240)]


def speech(random, samples, rate):
    """Vowels with harmonics of a voice that glides, hisses, and silence, in turns [samples] float32."""
    out = random.standard_normal(samples).astype(np.float32) * 10 ** random.uniform(-4.5, -2.5)
    pitch, loudness = random.uniform(80, 240), random.uniform(0.05, 0.4)
    at = 0
    while at < samples:
        is_pause = random.random() < 0.25
        length = int(rate * (random.uniform(0.2, 1.5) if is_pause else random.uniform(0.06, 0.3)))
        length = min(length, samples - at)
        if not is_pause:
            sound = hiss if random.random() < 0.25 else vowel
            shape = np.sin(np.linspace(0, np.pi, length)) ** 0.5
            out[at : at + length] += loudness * shape * sound(random, length, rate, pitch)
        at += length
    return out.clip(-1, 1)


def vowel(random, length, rate, pitch):
    """Harmonics, louder near three formants."""
    glide = np.linspace(*(pitch * random.uniform(0.8, 1.25, 2)), length)
    phase = 2 * np.pi * np.cumsum(glide) / rate
    formants = np.array(VOWELS_HZ[random.integers(len(VOWELS_HZ))])
    numbers = np.arange(1, int(min(3500, 0.45 * rate) / pitch))
    near = np.exp(-(((numbers[:, None] * pitch - formants) / 150) ** 2)) * [1, 0.6, 0.3]
    loud = near.sum(1) + 0.3 / numbers
    wave = np.zeros(length, np.float32)
    for number, height in zip(numbers, loud / loud.sum()):
        if height > 0.01 * loud.max() / loud.sum():
            wave += np.float32(height) * np.sin(number * phase, dtype=np.float32)
    return 2 * wave


def hiss(random, length, rate, pitch):
    """Noise without its low part, as of an s."""
    noise = random.standard_normal(length + 1).astype(np.float32)
    return 0.15 * np.diff(noise)


class Feed:
    """Chunks of sound for many streams: `voices` sounds of so many chunks, each a row with its context.

    Stream j reads voice j modulo `voices`, from a place of its own where there are fewer voices than
    streams, and from its start on behind its end.
    """

    def __init__(self, streams, voices, chunks, rate, sizes, seed):
        random = np.random.default_rng(seed)
        samples, context = sizes
        sound = np.zeros((voices, context + chunks * samples), np.float32)
        for of_voice in sound:
            of_voice[context:] = speech(random, chunks * samples, rate)
        windows = np.lib.stride_tricks.sliding_window_view(sound, samples + context, axis=1)
        self.rows = windows[:, ::samples]  # [voice, chunk, row], a view
        numbers = np.arange(streams)
        self._voice, self._first = numbers % voices, numbers // voices * 7 % chunks

    def row(self, stream, at):
        """The row that a stream sends as its chunk `at` [row]."""
        return self.rows[self._voice[stream], (self._first[stream] + at) % self.rows.shape[1]]

    def batch(self, streams, ats):
        """Rows of several [batch, row]."""
        return self.rows[self._voice[streams], (self._first[streams] + ats) % self.rows.shape[1]]
