# SPDX-License-Identifier: GPL-2.0-or-later
"""What a disk must hold: now, and at worst after it was killed, sector by sector.

A sector holds either its last durable value or one that was written later. The first of a
sector's values is the last durable one; a flush covers the values that were complete when it
was issued, and makes the latest of those the first.
"""

from dataclasses import dataclass, field

SECTOR = 512

# The number of each sector's last complete value.
Covered = dict[int, int]


@dataclass
class Sector:
    """The values that a sector may have, oldest first; they are numbered from `first` on."""

    values: list[bytes]
    first: int = 0
    complete: int = 0

    def durable(self, number: int) -> None:
        del self.values[: max(0, number - self.first)]
        self.first = max(self.first, number)


@dataclass
class Oracle:
    data: bytearray
    sectors: dict[int, Sector] = field(default_factory=dict)

    def issue(self, offset: int, data: bytes) -> None:
        """A write is under way. Nobody else writes to its sectors until it is complete."""
        first, last = offset // SECTOR, (offset + len(data) - 1) // SECTOR
        for index in range(first, last + 1):
            if index not in self.sectors:
                self.sectors[index] = Sector([self._sector(index)])
        self.data[offset : offset + len(data)] = data
        for index in range(first, last + 1):
            self.sectors[index].values.append(self._sector(index))

    def complete(self, offset: int, length: int, durable: bool) -> None:
        for index in range(offset // SECTOR, (offset + length - 1) // SECTOR + 1):
            sector = self.sectors[index]
            sector.complete = sector.first + len(sector.values) - 1
            if durable:
                sector.durable(sector.complete)

    def flush(self) -> Covered:
        """A flush is issued; returns what it covers."""
        return {index: sector.complete for index, sector in self.sectors.items()}

    def flushed(self, covered: Covered) -> None:
        for index, number in covered.items():
            self.sectors[index].durable(number)

    def resize(self, size: int) -> None:
        """All that was written is durable, and the disk has another size."""
        self.sectors.clear()
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))

    def lost(self, medium: bytes) -> list[int]:
        """The sectors in which the medium holds nothing that it may hold."""
        return [
            index
            for index in range(len(self.data) // SECTOR)
            if medium[index * SECTOR : (index + 1) * SECTOR]
            not in (self.sectors[index].values if index in self.sectors else [self._sector(index)])
        ]

    def _sector(self, index: int) -> bytes:
        return bytes(self.data[index * SECTOR : (index + 1) * SECTOR])
