package main

import (
	"crypto/tls"
	"path/filepath"
	"time"
)

// strangers is a row: the relay admits the certificate of Envoys, and neither another one of the same authority nor none.
func (w *World) strangers() {
	envoys := w.isAdmitted(w.secured)
	other := w.isAdmitted(clientTLS(filepath.Join(w.gateway.directory, "certs", "envoy-gateway")))
	none := w.isAdmitted(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	w.row(envoys && !other && !none, "%-58s %v, of Envoy Gateway itself %v, none %v",
		"  the relay admits the certificate of Envoys", envoys, other, none)
}

// isAdmitted tells whether the relay answers after the handshake. In TLS 1.3 a client hears of a refusal only by reading.
func (w *World) isAdmitted(secured *tls.Config) bool {
	secured = secured.Clone()
	secured.NextProtos = []string{"h2"}
	connection, err := tls.Dial("tcp", w.relay.Address, secured)
	if err != nil {
		return false
	}
	defer connection.Close()
	check(connection.SetDeadline(time.Now().Add(5 * time.Second)))
	_, err = connection.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	if err != nil {
		return false
	}
	count, _ := connection.Read(make([]byte, 9))
	return count > 0
}
