"""How long requests gather for a batch: until the loop has read all that has arrived."""

from dataclasses import dataclass

# From an answer that is sent to the next request of its client in the queue: one round of
# the loop to send it, one to read, one to check.
_QUIET_ROUNDS = 3
# How long clients that were answered may be quiet before they are taken not to ask again:
# this share of what their batch took, which is lost where they do not, and at most so many
# seconds. A batch of fewer costs more where they do: most of its steps are the same.
_PATIENCE, _LONGEST_PATIENCE = 0.05, 0.005
LONGEST_GATHER = 0.05  # seconds; several times what reading a full batch takes


@dataclass(eq=False)
class Gather:
    """What is known of requests that gather for the next batch.

    Attributes:
        until: When it ends at the latest, by `time.monotonic`.
        expected: How many requests will have arrived, since the beginning of all, when
            those that were just answered have asked again.
        patience: How many seconds without a new one they are waited for.
        arrived: How many had, in the last round of the loop.
        since: When that number last changed.
        quiet: For how many rounds it has not.

    Example:
        >>> gather = Gather(until=9.0)
        >>> [gather.goes_on(arrived=1, now=0.0) for _ in range(4)]
        [True, True, True, False]
    """

    until: float
    expected: int = 0
    patience: float = 0.0
    arrived: int = -1
    since: float = 0.0
    quiet: int = 0

    def goes_on(self, arrived: int, now: float) -> bool:
        """Whether more requests may come, after one more round of the loop.

        Args:
            arrived: How many have arrived by now, since the beginning of all.
            now: By `time.monotonic`.
        """
        if arrived != self.arrived:
            self.arrived, self.since, self.quiet = arrived, now, 0
        else:
            self.quiet += 1
        if now >= self.until:
            return False
        missed = arrived < self.expected and now - self.since < self.patience
        return missed or self.quiet < _QUIET_ROUNDS


def patience_after(seconds: float) -> float:
    """How long clients are waited for whose batch took a time.

    Args:
        seconds: That time.

    Example:
        >>> patience_after(0.02)
        0.001
    """
    return min(_PATIENCE * seconds, _LONGEST_PATIENCE)
