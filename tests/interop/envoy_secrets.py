"""SDS: certificates reach a TLS listener of Envoy, and are rotated there."""

import dataclasses
import datetime
import socket
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import resources
from harness import PORTS, Case, Envoy, eventually


@dataclasses.dataclass
class Certificate:
    """A self-signed certificate: in PEM with its key for Envoy, and in the form of a handshake."""

    chain: str
    key: str
    der: bytes


def certificate(name):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now - hour).not_valid_after(now + hour).sign(key, hashes.SHA256())
    encoding, plain = serialization.Encoding, serialization.NoEncryption()
    pem = key.private_bytes(encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return Certificate(made.public_bytes(encoding.PEM).decode(), pem.decode(), made.public_bytes(encoding.DER))


def shown(port):
    """The certificate of a handshake; None without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            with context.wrap_socket(plain) as connection:
                return connection.getpeercert(binary_form=True)
    except OSError:
        return None


def story(stage, variant, sds):
    """Envoy shows a certificate from the source `sds`, and then another."""
    plane = stage.upstream()
    port = PORTS.take()
    first, second = certificate("first"), certificate("second")
    plane.put(
        resources.cluster("backend"),
        resources.endpoints("backend", stage.backend("behind TLS")),
        resources.listener("secure", port, routes="main", tls=sds),
        resources.routes("main", "backend"),
        resources.secret("tls-secure", first),
    )
    envoy = Envoy(stage, variant)
    eventually("a handshake shows the certificate", lambda: shown(port) == first.der)
    plane.put(resources.secret("tls-secure", second))
    eventually("the rotation is followed", lambda: shown(port) == second.der)
    envoy.assert_content()
    assert not plane.nacks, plane.nacks


def case(name, variant, sds):
    return Case(f"sds {name}", {"envoy"}, lambda stage: story(stage, variant, sds))


CASES = [case(variant, variant, resources.ADS) for variant in Envoy.ADS]
CASES += [case(f"own {api}", "delta-ads", resources.source(api)) for api in ("GRPC", "DELTA_GRPC", "REST")]
