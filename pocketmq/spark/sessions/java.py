"""Finds the Java runtime that Spark needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

OLDEST_JAVA = 17

#: Package managers, in search order, with the command that installs a Java runtime.
INSTALL_JAVA = {
    "apt-get": "sudo apt-get install default-jre-headless",
    "dnf": "sudo dnf install java-latest-openjdk-headless",
    "apk": "sudo apk add openjdk17-jre-headless",
    "pacman": "sudo pacman -S jre-openjdk-headless",
    "zypper": "sudo zypper install java-17-openjdk-headless",
    "brew": "brew install openjdk",
}


class SparkUnavailable(Exception):
    """Spark cannot run here; the text says what is missing, and how to install it."""


def find_java() -> Path:
    """Return a Java runtime that is new enough: the one in JAVA_HOME, else the one in PATH.

    Raises:
        SparkUnavailable: none was found.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [shutil.which("java", path=str(Path(home) / "bin")) if home else None]
    candidates.append(shutil.which("java"))
    too_old = ""
    for candidate in filter(None, candidates):
        version = java_version(Path(candidate))
        if version >= OLDEST_JAVA:
            return Path(candidate)
        too_old = f" ({candidate} is version {version})" if version else ""
    advice = next(
        (f"type: {line}" for manager, line in INSTALL_JAVA.items() if shutil.which(manager)),
        "install one and set JAVA_HOME to its directory",
    )
    raise SparkUnavailable(f"Spark needs Java {OLDEST_JAVA} or newer{too_old}; {advice}")


def java_version(java: Path) -> int:
    """Return the major version of a runtime; 0 if it cannot be determined."""
    try:
        ended = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    # 17.0.15, 21, and 1.8.0_392 for version 8.
    match = re.search(r'version "(?:1\.)?(\d+)', ended.stderr + ended.stdout)
    return int(match[1]) if match else 0


def use_java(java: Path) -> None:
    """Make Spark start this runtime: Spark checks JAVA_HOME before PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and java.parent != Path(home) / "bin":
        del os.environ["JAVA_HOME"]
