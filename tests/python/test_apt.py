# SPDX-License-Identifier: GPL-2.0-or-later
import platform
import subprocess
from pathlib import Path

import pytest

from batchflush import apt
from batchflush.errors import BatchflushError

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DEB822 = f"""\
# The machine's mirror
Types: deb deb-src
URIs: http://one.example/debian
# a comment: amid the fields
 http://two.example/debian/
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: {KEYRING}

Types: deb
URIs: http://one.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: {KEYRING}

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Signed-By: {KEYRING}

Types: deb-src
URIs: http://sources-only.example/debian
Suites: bookworm
Components: main
Signed-By: {KEYRING}
"""


@pytest.fixture
def etc_apt(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    return tmp_path


def test_a_deb822_file_is_read(etc_apt: Path) -> None:
    (etc_apt / "sources.list.d/debian.sources").write_text(DEB822)
    (entry,) = apt.archive_entries("bookworm", etc_apt)
    assert entry.uris == ("http://one.example/debian", "http://two.example/debian/")
    # Neither backports, nor security, nor what is switched off.
    assert entry.suites == ("bookworm", "bookworm-updates")
    assert dict(entry.trust) == {"Signed-By": KEYRING}


def test_one_line_entries_are_read(etc_apt: Path) -> None:
    (etc_apt / "sources.list").write_text(
        "# deb http://old.example/debian bookworm main\n"
        f"deb [arch=amd64 signed-by={KEYRING}] http://one.example/debian bookworm main # mine\n"
        "deb-src http://one.example/debian bookworm main\n"
        "\n"
    )
    (entry,) = apt.archive_entries("bookworm", etc_apt)
    assert entry == apt.Entry(
        ("http://one.example/debian",), ("bookworm",), ("main",), (("Signed-By", KEYRING),)
    )


def test_a_disc_is_no_mirror(etc_apt: Path) -> None:
    (etc_apt / "sources.list").write_text("deb cdrom:[Disc]/debian bookworm main\n")
    with pytest.raises(BatchflushError, match="no entry for bookworm main"):
        apt.archive_entries("bookworm", etc_apt)


def test_the_archive_s_own_key_counts_more_than_the_address(etc_apt: Path) -> None:
    (etc_apt / "sources.list").write_text(
        "deb http://vendor.example/debian bookworm main\n"
        f"deb [signed-by={KEYRING}] http://one.example/pub bookworm main\n"
    )
    (entry,) = apt.archive_entries("bookworm", etc_apt)
    assert entry.uris == ("http://one.example/pub",)


def test_other_archives_are_not_asked(etc_apt: Path) -> None:
    (etc_apt / "sources.list").write_text(
        "deb http://one.example/debian bookworm main\n"
        "deb [signed-by=/etc/apt/keyrings/vendor.gpg] http://vendor.example/debian bookworm main\n"
        "deb http://vendor.example/packages bookworm main\n"
        "deb http://containers.example/linux/debian bookworm stable\n"
    )
    (entry,) = apt.archive_entries("bookworm", etc_apt)
    assert entry.uris == ("http://one.example/debian",)


def test_a_mirror_with_an_unusual_address_is_taken_where_there_is_no_other(etc_apt: Path) -> None:
    (etc_apt / "sources.list").write_text(
        "deb mirror+file:///etc/apt/mirrors/debian.list bookworm main\n"
    )
    (entry,) = apt.archive_entries("bookworm", etc_apt)
    assert entry.uris == ("mirror+file:///etc/apt/mirrors/debian.list",)


def test_files_with_other_names_are_ignored_as_apt_does(etc_apt: Path) -> None:
    (etc_apt / "sources.list.d/debian.list.save").write_text(
        "deb http://one.example/debian bookworm main\n"
    )
    with pytest.raises(BatchflushError, match="no entry for bookworm main"):
        apt.archive_entries("bookworm", etc_apt)


def test_a_key_in_the_entry_itself_is_kept(etc_apt: Path) -> None:
    key = "\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBFxx\n"
    (etc_apt / "sources.list.d/debian.sources").write_text(
        "Types: deb\nURIs: http://one.example/debian\nSuites: bookworm\nComponents: main\n"
        f"Signed-By:{key}"
    )
    (entry,) = apt.archive_entries("bookworm", etc_apt)
    assert key.strip() in entry.stanza("deb-src", ["trixie"])


def test_the_entry_for_another_suite_keeps_address_and_trust() -> None:
    entry = apt.Entry(
        ("http://one.example/debian",), ("bookworm",), ("main",), (("Signed-By", KEYRING),)
    )
    assert entry.stanza("deb-src", ["trixie"]).splitlines() == [
        "Types: deb-src",
        "URIs: http://one.example/debian",
        "Suites: trixie",
        "Components: main",
        "Targets: Sources",
        f"Signed-By: {KEYRING}",
    ]


def test_another_distribution_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    release = {"ID": "fedora", "PRETTY_NAME": "Fedora 42", "VERSION_CODENAME": "x"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    with pytest.raises(BatchflushError, match="Fedora 42"):
        apt.host_codename()


class FakeArchive:
    """Stands for the network: counts how often something is fetched."""

    fetched = 0
    records = ""

    def __init__(self, cache: Path) -> None:
        self.folder = cache / "batchflush/apt/fake"
        self.debs = self.folder / "debs"
        self.debs.mkdir(parents=True)

    def update(self) -> None:
        pass

    def ask(self, program: str, *arguments: str) -> str:
        assert program == "apt-cache"
        return self.records.replace("PACKAGE", arguments[-1])

    def fetch(self, title: str, *arguments: str, cwd: Path) -> None:
        assert arguments[0] == "download"
        self.fetched += 1
        for package in arguments[1:]:
            (cwd / f"{package}_1%3a2-3_amd64.deb").write_text(package)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeArchive:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(apt, "host_codename", lambda: "bookworm")
    archive = FakeArchive(tmp_path)
    archive.records = "Package: PACKAGE\nVersion: 1:2-3\nArchitecture: amd64\n"
    monkeypatch.setattr(apt, "_host_archive", lambda: archive)
    return archive


def test_what_was_fetched_once_is_not_fetched_again(archive: FakeArchive) -> None:
    first = apt.download(["tool", "other"], with_dependencies=False)
    assert [file.name for file in first] == ["tool_1%3a2-3_amd64.deb", "other_1%3a2-3_amd64.deb"]
    assert apt.download(["other", "tool"], with_dependencies=False) == first
    assert archive.fetched == 1


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("cut off")])
def test_what_is_missing_or_damaged_is_fetched_again(archive: FakeArchive, damage) -> None:
    (deb,) = apt.download(["tool"], with_dependencies=False)
    damage(deb)
    apt.download(["tool"], with_dependencies=False)
    assert archive.fetched == 2
    assert deb.read_text() == "tool"


def test_a_package_that_only_stands_for_another_is_followed(archive: FakeArchive) -> None:
    archive.records += "Depends: linux-image-6.1.0-50-cloud-amd64 (= 1:2-3)\n"
    (deb,) = apt.download(["linux-image-cloud-amd64"], with_dependencies=False)
    assert deb.name.startswith("linux-image-6.1.0-50-cloud-amd64_")


def test_packages_are_unpacked(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "DEBIAN/control").write_text(
        "Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: none\n"
    )
    (package / "file").write_text("content")
    subprocess.run(["dpkg-deb", "-b", package, tmp_path / "tool.deb"], check=True)
    apt.unpack([tmp_path / "tool.deb"], tmp_path / "into")
    assert (tmp_path / "into/file").read_text() == "content"


def test_a_damaged_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.deb").write_text("no package")
    with pytest.raises(BatchflushError, match=r"bad\.deb"):
        apt.unpack([tmp_path / "bad.deb"], tmp_path / "into")
