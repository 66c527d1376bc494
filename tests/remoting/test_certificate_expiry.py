"""When a certificate expires is read from its file, whatever is in it."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.tls.certificate_expiry import expiry_of
from tests.interop.harness.certificate import make_certificate
from tests.interop.harness.official import Unavailable


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return make_certificate(tmp_path_factory.mktemp("certificate")).chain
    except Unavailable as error:
        pytest.skip(str(error))


def test_the_end_is_the_one_that_openssl_shows(chain: Path) -> None:
    told = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", chain],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    end = ssl.cert_time_to_seconds(told.stdout.strip().partition("=")[2])
    assert expiry_of(chain.read_text()) == end
    assert expiry_of("a key first\n" + chain.read_text()) == end


@given(st.text())
def test_a_text_without_a_certificate_has_no_end(text: str) -> None:
    assert expiry_of(text) is None


@given(st.binary(max_size=200))
def test_broken_certificates_have_no_end(der: bytes) -> None:
    assert expiry_of(ssl.DER_cert_to_PEM_cert(der)) is None
