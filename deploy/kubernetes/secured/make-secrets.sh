#!/bin/sh
# Write secrets/*.conf: the settings of a layout (../replicated by default) and new passwords of two
# users: the administrator, and the one whose signature the servers use among themselves.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir secrets # fails if there are some
random() { head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
admin=$(random)
inner=$(random)
for file in namesrv.conf broker.conf proxy.conf; do
    layout=${1:-../replicated}
    [ -e "$layout/$file" ] || layout=../base
    {
        # Slaves sign their requests, so no address needs to be trusted for its own sake.
        sed '/^# The private networks/d; /^haAllowedAddresses=/d' "$layout/$file"
        echo "authenticationEnabled=true"
        echo "authorizationEnabled=true"
        [ "$file" = proxy.conf ] ||
            echo "initAuthenticationUser={\"username\":\"admin\",\"password\":\"$admin\"}"
        echo "innerClientAuthenticationCredentials={\"accessKey\":\"inner\",\"secretKey\":\"$inner\"}"
    } >"secrets/$file"
done
printf 'accessKey: admin\nsecretKey: %s\n' "$admin" >secrets/tools.yml
echo "secrets/tools.yml has the administrator's credentials: pocketmq status --credentials secrets/tools.yml"
