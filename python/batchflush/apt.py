# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian packages without touching the host: a private apt in the cache.

The private apt reads the Debian archive that the machine itself uses, with
lists, downloads and an empty package database of its own, so that nothing on
the host changes and no special rights are needed. The machine's proxies,
credentials and certificates still hold, because /etc/apt/apt.conf.d is read.

What was fetched once is answered from the cache, without the network.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from batchflush import paths, processes, progress
from batchflush.errors import BatchflushError

ETC_APT = Path("/etc/apt")
LISTS_GOOD_FOR_SECONDS = 24 * 3600
NETWORK_HINT = "see whether 'apt-get update' works on this machine, then try again"

# Other names under which a machine may follow its own suite.
_SUITE_ALIASES = ("stable", "oldstable", "testing", "unstable", "sid")

# Fields of an entry that say how to reach and trust an archive, not what it holds.
_TRUST_FIELDS = {
    "signed-by": "Signed-By",
    "trusted": "Trusted",
    "check-valid-until": "Check-Valid-Until",
    "allow-insecure": "Allow-Insecure",
}


# The machine's sources


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of the machine's apt sources, whichever of the two formats it is written in."""

    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    trust: tuple[tuple[str, str], ...] = ()

    def confidence(self) -> int:
        """How sure it is that this is the Debian archive: 0 means a guess."""
        signed_by = dict(self.trust).get("Signed-By", "")
        if "debian-archive" in signed_by:
            return 2
        addresses = [uri.rstrip("/") for uri in self.uris]
        return int(not signed_by and all(uri.endswith("/debian") for uri in addresses))

    def stanza(self, kind: str, suites: Sequence[str]) -> str:
        """The entry for other suites, in deb822 format; kind is "deb" or "deb-src"."""
        fields = {
            "Types": kind,
            "URIs": " ".join(self.uris),
            "Suites": " ".join(suites),
            "Components": "main",
            # Nothing but the list of packages: other lists are large and not used.
            "Targets": "Packages" if kind == "deb" else "Sources",
            **dict(self.trust),
        }
        return "".join(f"{name}: {value}\n" for name, value in fields.items())


def host_codename() -> str:
    """The Debian release of this machine, such as "bookworm"."""
    release = platform.freedesktop_os_release()
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") != "debian" or not codename:
        name = release.get("PRETTY_NAME", "no Debian")
        raise BatchflushError(
            f"packages are taken from the machine's own Debian archive, but this is {name}",
            "use Debian 12 or newer, in a container for instance",
        )
    return codename


def archive_entries(codename: str, etc_apt: Path = ETC_APT) -> list[Entry]:
    """The machine's entries for the main part of the Debian archive, security left out."""
    suites = {codename, f"{codename}-updates", *_SUITE_ALIASES}
    entries = [
        dataclasses.replace(entry, suites=tuple(suite for suite in entry.suites if suite in suites))
        for entry in machine_entries(etc_apt)
        if "main" in entry.components and suites.intersection(entry.suites)
    ]
    if not entries:
        raise BatchflushError(
            f"no entry for {codename} main in {etc_apt}/sources.list or "
            f"{etc_apt}/sources.list.d, so it is not known where to fetch packages",
            f"add one: 'deb ADDRESS-OF-A-DEBIAN-MIRROR {codename} main'",
        )
    best = max(entry.confidence() for entry in entries)
    return [entry for entry in entries if entry.confidence() == best]


def machine_entries(etc_apt: Path = ETC_APT) -> list[Entry]:
    """All entries for binary packages that are switched on."""
    files = [etc_apt / "sources.list", *sorted((etc_apt / "sources.list.d").glob("*"))]
    entries = []
    for file in files:
        if not file.is_file() or file.suffix not in (".list", ".sources"):
            continue
        text = file.read_text(errors="replace")
        entries += _deb822(text) if file.suffix == ".sources" else _one_line(text)
    return entries


def _one_line(text: str) -> Iterator[Entry]:
    """The format of sources.list: deb [option=value ...] URI suite component..."""
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^\]]*)\]\s*)?(.*)", line.split("#")[0].strip())
        if not match or len(match[2].split()) < 2:
            continue
        options = dict(option.split("=", 1) for option in (match[1] or "").split() if "=" in option)
        uri, suite, *components = match[2].split()
        if uri.startswith("cdrom:"):
            continue
        yield Entry((uri,), (suite,), tuple(components), _trust(options))


def _deb822(text: str) -> Iterator[Entry]:
    """The format of *.sources: stanzas of fields, continued on lines that begin with a blank."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        fields = {
            match[1].lower(): match[2].strip()
            for match in re.finditer(r"^([^\s:]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        }
        if "deb" not in fields.get("types", "").split():
            continue
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off", "without"):
            continue
        uris, suites, components = (
            tuple(fields.get(name, "").split()) for name in ("uris", "suites", "components")
        )
        yield Entry(uris, suites, components, _trust(fields))


def _trust(options: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (field, options[name]) for name, field in _TRUST_FIELDS.items() if options.get(name)
    )


# A private apt


class Archive:
    """The packages of some suites of the Debian archive. Nothing is fetched before it is needed."""

    def __init__(self, name: str, sources: str) -> None:
        self.folder = paths.cache() / "apt" / name
        self.debs = self.folder / "debs"
        self._lists = self.folder / "lists"
        self._config = self.folder / "apt.conf"
        for folder in (self.debs / "partial", self._lists / "partial", self.folder / "empty"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        # The lists belong to these sources; other sources need other lists.
        sources_file = self.folder / "debian.sources"
        if not sources_file.exists() or sources_file.read_text() != sources:
            sources_file.write_text(sources)
            self._lists_stamp.unlink(missing_ok=True)
        self._config.write_text(_configuration(self.folder))

    @property
    def _lists_stamp(self) -> Path:
        return self._lists / "updated"

    def update(self, *, force: bool = False) -> None:
        """Fetch the lists of packages, unless they are fresh."""
        stamp = self._lists_stamp
        age = time.time() - stamp.stat().st_mtime if stamp.exists() else float("inf")
        if not force and age < LISTS_GOOD_FOR_SECONDS:
            return
        # apt tells by its exit code only with this option whether an update failed.
        options = ("-o", "APT::Update::Error-Mode=any")
        self._fetch("Fetching Debian's list of packages", *options, "update")
        stamp.touch()

    def fetch(self, title: str, *arguments: str, cwd: Path | None = None) -> None:
        """Run apt-get to download something; with new lists if the archive has moved on."""
        try:
            self._fetch(title, *arguments, cwd=cwd)
        except BatchflushError:
            self.update(force=True)
            self._fetch(title, *arguments, cwd=cwd)

    def ask(self, program: str, *arguments: str) -> str:
        """The output of apt-get or apt-cache with the private configuration."""
        done = subprocess.run(
            [program, "-c", self._config, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        if done.returncode != 0:
            raise BatchflushError(
                f"{program} {' '.join(arguments)} failed: {done.stderr.strip()}", NETWORK_HINT
            )
        return done.stdout

    def _fetch(self, title: str, *arguments: str, cwd: Path | None = None) -> None:
        with progress.step(title) as step:

            def show(line: str) -> bool:
                # dlstatus:number:percent:what it does
                if not line.startswith(("dlstatus:", "pmstatus:")):
                    return False
                _, _, percent, note = line.split(":", 3)
                step.update(float(percent), 100, note)
                return True

            processes.run_logged(
                ["apt-get", "-c", self._config, "-o", "APT::Status-Fd=1", "-q", "-y", *arguments],
                self.folder / "apt.log",
                title[0].lower() + title[1:],
                hint=NETWORK_HINT,
                on_line=show,
                cwd=cwd,
                env={"LC_ALL": "C.UTF-8"},
            )


def _configuration(folder: Path) -> str:
    """Read by apt after the machine's own configuration."""
    return f"""\
// Hooks and package lists of other programs on this machine are not for us.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear APT::Architectures;
APT::Install-Recommends "false";
APT::Sandbox::User "root";
APT::Keep-Downloaded-Packages "true";
Acquire::Languages "none";
Dir::Etc::sourcelist "{folder}/debian.sources";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::State::extended_states "{folder}/extended_states";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/debs";
Dir::Cache::pkgcache "{folder}/pkgcache.bin";
Dir::Cache::srcpkgcache "{folder}/srcpkgcache.bin";
Dir::Log "{folder}";
"""


def _host_archive() -> Archive:
    codename = host_codename()
    stanzas = [entry.stanza("deb", entry.suites) for entry in archive_entries(codename)]
    return Archive(codename, "\n".join(stanzas))


def _archive(suite: str) -> Archive:
    if suite == host_codename():
        return _host_archive()
    stanzas = dict.fromkeys(
        entry.stanza("deb", [suite]) for entry in archive_entries(host_codename())
    )
    return Archive(suite, "\n".join(stanzas))


def _source_archive(suite: str) -> Archive:
    entries = archive_entries(host_codename())
    # Once per address, however many suites the machine itself follows there.
    stanzas = dict.fromkeys(entry.stanza("deb-src", [suite]) for entry in entries)
    return Archive(f"{suite}-source", "\n".join(stanzas))


# What is asked for


def download(
    packages: Sequence[str], *, with_dependencies: bool, suite: str | None = None
) -> list[Path]:
    """The .deb files, in the cache, of packages of a suite, by default the machine's own.

    with_dependencies: everything that the packages need on an empty machine
    comes too. Without, a package that only stands for another one of the same
    version (linux-image-cloud-amd64) is replaced by that one.
    """
    with _lock():
        suite = suite or host_codename()
        request = _Request("debs", suite, *sorted(packages), str(with_dependencies))
        files = request.answer()
        if files is None:
            archive = _archive(suite)
            archive.update()
            title = f"Fetching Debian packages: {', '.join(packages)}"
            if with_dependencies:
                files = _fetch_with_dependencies(archive, title, packages)
            else:
                files = _fetch_alone(archive, title, packages)
            request.keep(files)
        return files


def source_versions(package: str, suite: str) -> list[str]:
    """The versions of a source package that a suite offers, as Debian counts them."""
    with _lock():
        archive = _source_archive(suite)
        archive.update()
        told = archive.ask("apt-cache", "showsrc", "--only-source", package)
    return list(dict.fromkeys(re.findall(r"^Version: (\S+)", told, re.M)))


def download_source(package: str, suite: str, version: str = "") -> Path:
    """The .dsc file, in the cache, of a source package of the named suite; else the newest."""
    with _lock():
        package = f"{package}={version}" if version else package
        request = _Request("source", suite, package)
        files = request.answer()
        if files is None:
            archive = _source_archive(suite)
            archive.update()
            folder = archive.folder / re.sub(r"[=:]", "_", package)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            title = f"Fetching Debian's source of {package} ({suite})"
            archive.fetch(title, "source", "--download-only", package, cwd=folder)
            files = sorted(folder.iterdir(), key=lambda file: file.suffix != ".dsc")
            request.keep(files)
        return files[0]


def unpack(debs: Sequence[Path], into: Path) -> None:
    """Unpack packages, without running any of their scripts."""
    into.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        done = subprocess.run(["dpkg-deb", "-x", deb, into], capture_output=True, text=True)
        if done.returncode != 0:
            raise BatchflushError(
                f"unpacking {deb} failed: {done.stderr.strip()}", f"remove {deb} and try again"
            )


def _fetch_with_dependencies(archive: Archive, title: str, packages: Sequence[str]) -> list[Path]:
    install = ("install", "--download-only", *packages)
    # With an empty folder of downloads every file of the answer is named.
    asked = archive.ask(
        "apt-get", "-o", f"Dir::Cache::archives={archive.folder}/empty", "-q", "-y",
        "--print-uris", *install,
    )  # fmt: skip
    names = re.findall(r"^'[^']+' (\S+\.deb) \d+", asked, re.MULTILINE)
    archive.fetch(title, *install)
    return [archive.debs / name for name in names]


def _fetch_alone(archive: Archive, title: str, packages: Sequence[str]) -> list[Path]:
    wanted = [_stands_for(archive, package) for package in packages]
    records = [_record(archive, package) for package in wanted]
    # apt escapes the colon of an epoch in the names of the files that it downloads.
    names = [
        f"{record['Package']}_{record['Version'].replace(':', '%3a')}_{record['Architecture']}.deb"
        for record in records
    ]
    archive.fetch(title, "download", *wanted, cwd=archive.debs)
    return [archive.debs / name for name in names]


def _stands_for(archive: Archive, package: str) -> str:
    record = _record(archive, package)
    only = re.fullmatch(r"(\S+) \(= (\S+)\)", record.get("Depends", ""))
    return only[1] if only and only[2] == record["Version"] else package


def _record(archive: Archive, package: str) -> dict[str, str]:
    text = archive.ask("apt-cache", "show", "--no-all-versions", package)
    return dict(re.findall(r"^([^\s:]+): (.*)$", text, re.MULTILINE))


class _Request:
    """A question and the files that answered it, so that it need not be asked again."""

    def __init__(self, *question: str) -> None:
        digest = hashlib.sha256("\n".join(question).encode()).hexdigest()[:16]
        self._file = paths.cache() / "apt/requests" / f"{digest}.json"
        self._question = question

    def answer(self) -> list[Path] | None:
        """None if it was never asked, or if a file of the answer has gone."""
        try:
            kept = json.loads(self._file.read_text())
        except (OSError, ValueError):
            return None
        base = paths.cache()
        files = [base / name for name, _ in kept["files"]]
        sizes = [size for _, size in kept["files"]]
        if any(not f.is_file() or f.stat().st_size != s for f, s in zip(files, sizes, strict=True)):
            return None
        return files

    def keep(self, files: Sequence[Path]) -> None:
        base = paths.cache()
        kept = [(str(file.relative_to(base)), file.stat().st_size) for file in files]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"question": self._question, "files": kept}, indent=1))


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One at a time: apt-get's own locks fail instead of waiting."""
    folder = paths.cache() / "apt"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
