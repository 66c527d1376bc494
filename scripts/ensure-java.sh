#!/bin/sh
# Finds a Java runtime of version 17 or newer (JAVA_HOME, then PATH), which Spark needs; where there
# is none, installs one with the system's package manager when that works without asking for a
# password, else prints the one line to type and fails.
set -u

major() { # prints the major version of the runtime $1, nothing when it does not run
    "$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

found() {
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" java; do
        [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
        version=$(major "$candidate")
        [ -n "$version" ] && [ "$version" -ge 17 ] && return 0
    done
    return 1
}

found && exit 0

if command -v apt-get >/dev/null 2>&1; then
    install='apt-get update -qq && apt-get install -y -qq default-jre-headless'
elif command -v dnf >/dev/null 2>&1; then
    install='dnf install -y -q java-latest-openjdk-headless'
elif command -v apk >/dev/null 2>&1; then
    install='apk add --quiet openjdk17-jre-headless'
elif command -v pacman >/dev/null 2>&1; then
    install='pacman -S --noconfirm --quiet jre-openjdk-headless'
elif command -v zypper >/dev/null 2>&1; then
    install='zypper --quiet --non-interactive install java-17-openjdk-headless'
elif command -v brew >/dev/null 2>&1; then
    install='brew install --quiet openjdk'
else
    echo 'Spark needs Java 17 or newer: install a JRE and set JAVA_HOME to it.' >&2
    exit 1
fi

case "$install" in
brew*) as_root='' ;; # Homebrew refuses to run as root
*)
    as_root=''
    [ "$(id -u)" = 0 ] || as_root='sudo -n '
    ;;
esac

echo "Spark needs Java 17 or newer and none was found; installing one: $install"
if ${as_root}sh -c "$install" >/dev/null 2>&1 && found; then
    exit 0
fi
echo "Spark needs Java 17 or newer. Type: ${as_root:+sudo }sh -c '$install'" >&2
exit 1
