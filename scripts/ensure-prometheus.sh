#!/bin/sh
# Finds the Prometheus that scrapes brokers in tests, and its promtool; where one is missing, takes
# both from Debian's package, with apt-get. They are put into .cache/prometheus and not installed: the
# package would start a server on port 9090. Without them the tests are skipped.
set -u

directory=.cache/prometheus

found() {
    for name in prometheus promtool; do
        command -v "$name" >/dev/null 2>&1 || [ -x "$directory/usr/bin/$name" ] || return 1
    done
}

unpack() {
    mkdir -p "$directory" || return 1
    (
        cd "$directory" &&
            apt-get download -qq prometheus &&
            dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin
    ) >/dev/null 2>&1
    code=$?
    rm -f "$directory"/prometheus_*.deb
    return $code
}

found && exit 0
command -v apt-get >/dev/null 2>&1 || exit 0

as_root=''
[ "$(id -u)" = 0 ] || as_root='sudo -n '
echo "Metrics are tested with Prometheus and none was found; unpacking Debian's into $directory"
# Lists of packages that are missing or old are the usual reason why a download fails.
if unpack || { ${as_root}apt-get update -qq >/dev/null 2>&1 && unpack; } && found; then
    exit 0
fi
echo "Tests with Prometheus are skipped. To have it, install the programs prometheus and promtool." >&2
