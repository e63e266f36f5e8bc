package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Resources is the directory of Gateway API resources that Envoy Gateway follows: a file for each object.
type Resources struct {
	directory string
}

// newResources has two gateways, each with a listener for HTTP and one for HTTPS, six routes and seven backends.
func newResources(directory string) *Resources {
	check(os.MkdirAll(directory, 0o700))
	r := &Resources{directory}
	r.put("class", fmt.Sprintf(class, controllerName, envoyVersion))
	for number, gateway := range []string{"shop", "api"} {
		r.putGateway(gateway, "")
		r.putSecret(gateway, "first")
		for route := range 3 {
			name := fmt.Sprintf("%s-%d", gateway, route)
			r.putBackend(name, fmt.Sprintf("10.%d.%d.1", number+1, route))
			r.putRoute(name, gateway, name)
		}
	}
	r.put("authority", fmt.Sprintf(configMap, indent(newCertificate("authority", true).certificate)))
	r.putBackend("secure", "10.3.0.1")
	r.putRoute("secure", "api", "secure")
	r.put("backend-tls", backendTLS)
	return r
}

// put writes an object in one step.
func (r *Resources) put(name, text string) {
	former := filepath.Join(r.directory, "."+name)
	check(os.WriteFile(former, []byte(text), 0o600))
	check(os.Rename(former, r.path(name)))
}

func (r *Resources) drop(names ...string) {
	for _, name := range names {
		check(os.Remove(r.path(name)))
	}
}

func (r *Resources) path(name string) string {
	return filepath.Join(r.directory, name+".yaml")
}

// putGateway has a further listener if its name is not empty.
func (r *Resources) putGateway(name, further string) {
	text := fmt.Sprintf(gatewayObject, name)
	if further != "" {
		text += fmt.Sprintf("  - { name: %s, protocol: HTTP, port: 8081 }\n", further)
	}
	r.put("gateway-"+name, text)
}

func (r *Resources) putSecret(gateway, host string) {
	r.putPair(gateway, newCertificate(host+"."+gateway+".example", false))
}

func (r *Resources) putPair(gateway string, pair Pair) {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	r.put("secret-"+gateway, fmt.Sprintf(secretObject, gateway, encode(pair.certificate), encode(pair.key)))
}

// putBackend has one endpoint for each address.
func (r *Resources) putBackend(name string, addresses ...string) {
	text := fmt.Sprintf(backendObject, name)
	for _, address := range addresses {
		text += fmt.Sprintf("  - ip: { address: %s, port: 3000 }\n", address)
	}
	r.put("backend-"+name, text)
}

func (r *Resources) putRoute(name, gateway, backend string) {
	r.put("route-"+name, fmt.Sprintf(routeObject, name, gateway, backend))
}

// putTraffic limits the connections of a gateway and, with isMutual, asks its clients for certificates of the authority.
func (r *Resources) putTraffic(gateway string, connections int, isMutual bool) {
	text := fmt.Sprintf(trafficObject, gateway, connections)
	if isMutual {
		text += "  tls: { clientValidation: { caCertificateRefs: [{ group: \"\", kind: ConfigMap, name: authority }] } }\n"
	}
	r.put("traffic-"+gateway, text)
}

const class = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: { name: proxies, namespace: default }
spec: { provider: { type: Host, host: { envoyVersion: "%[2]s" } } }
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: class }
spec:
  controllerName: %[1]s
  parametersRef: { group: gateway.envoyproxy.io, kind: EnvoyProxy, name: proxies, namespace: default }
`

const gatewayObject = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: %[1]s, namespace: default }
spec:
  gatewayClassName: class
  listeners:
  - { name: http, protocol: HTTP, port: 8080 }
  - { name: https, protocol: HTTPS, port: 8443, tls: { mode: Terminate, certificateRefs: [{ name: %[1]s }] } }
`

const secretObject = `apiVersion: v1
kind: Secret
metadata: { name: %s, namespace: default }
type: kubernetes.io/tls
data: { tls.crt: %s, tls.key: %s }
`

const configMap = `apiVersion: v1
kind: ConfigMap
metadata: { name: authority, namespace: default }
data:
  ca.crt: |
%s
`

const backendObject = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: { name: %s, namespace: default }
spec:
  endpoints:
`

const routeObject = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: %[1]s, namespace: default }
spec:
  parentRefs: [{ name: %[2]s }]
  hostnames: [%[1]s.%[2]s.example]
  rules:
  - matches: [{ path: { type: PathPrefix, value: / } }]
    backendRefs: [{ group: gateway.envoyproxy.io, kind: Backend, name: %[3]s }]
`

const trafficObject = `apiVersion: gateway.envoyproxy.io/v1alpha1
kind: ClientTrafficPolicy
metadata: { name: %[1]s, namespace: default }
spec:
  targetRefs: [{ group: gateway.networking.k8s.io, kind: Gateway, name: %[1]s }]
  connection: { connectionLimit: { value: %[2]d } }
`

const backendTLS = `apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: { name: secure, namespace: default }
spec:
  targetRefs: [{ group: gateway.envoyproxy.io, kind: Backend, name: secure }]
  validation: { caCertificateRefs: [{ group: "", kind: ConfigMap, name: authority }], hostname: secure.example }
`

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// Pair is a self-signed certificate with its key, in PEM.
type Pair struct{ certificate, key string }

func newCertificate(name string, isAuthority bool) Pair {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: isAuthority, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if isAuthority {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	body := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	encode := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return Pair{encode("CERTIFICATE", body), encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))}
}
