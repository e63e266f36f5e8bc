package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pkg/config/schema/gvk"
	kinds "istio.io/istio/pkg/config/schema/kind"
	kubelib "istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/security"
	"istio.io/istio/pkg/util/sets"
	"istio.io/istio/security/pkg/server/ca/authenticate"
)

// secretObjects are the Gateways of the world with Secrets.
//
//go:embed secrets.yaml
var secretObjects string

// secretRules are for the classes of its relay.
//
//go:embed secretrules.yaml
var secretRules string

// The service account of the gateways behind the relay, which is that of the relay itself; and another one.
const (
	account      = "ingress"
	otherAccount = "other"
	serverName   = "istiod.istio-system.svc"
)

// secretsPlan has gateways of two service accounts, in all zones.
func secretsPlan() *Plan {
	pods := podsOf(16, 20)
	for _, of := range []struct {
		account string
		count   int
	}{{account, 12}, {otherAccount, 3}} {
		for number := range of.count {
			pods = append(pods, &Pod{
				name: fmt.Sprintf("%s-%d", of.account, number), namespace: namespace, workload: "ingress", kind: "router", version: "v1",
				address: fmt.Sprintf("10.5.%d.%d", len(of.account), number+1), node: fmt.Sprintf("n%d", number),
				labelled: map[string]string{"istio": "ingress"}, account: of.account,
			})
		}
	}
	// istiod writes the key of a certificate otherwise for this one.
	provider := map[string]any{"cryptomb": map[string]any{"pollDelay": "0.02s"}}
	key("PROXY_CONFIG", proxyConfig("privateKeyProvider", provider))(pods[16])
	plan := plan(pods, 20, 0)
	plan.authority = newAuthority("cluster.local")
	for _, pod := range pods[16:] {
		pod.credentials = plan.authority.credentialsOf(pod.account)
	}
	plan.configuration += "---\n" + secretObjects
	authority := newAuthority("certificates of the gateways")
	plan.objects = append(plan.objects, service("ingress", "10.96.4.1"))
	for _, name := range []string{"shop", "mutual"} {
		plan.objects = append(plan.objects, authority.secret(name))
	}
	return plan
}

// Authority signs certificates.
type Authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pem         []byte
}

func newAuthority(name string) *Authority {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := certificate(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))
	return &Authority{key, must(x509.ParseCertificate(der)), block("CERTIFICATE", der)}
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: must(rand.Int(rand.Reader, big.NewInt(1<<62))), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// pair is a certificate and its key, for a DNS name or for the identity of a service account.
func (a *Authority) pair(name, account string) (chain, key []byte) {
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := certificate(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if account != "" {
		template.URIs = []*url.URL{must(url.Parse("spiffe://cluster.local/ns/" + namespace + "/sa/" + account))}
	} else {
		template.DNSNames = []string{name}
	}
	der := must(x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key))
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(private)))
}

// secret is a fresh certificate as Kubernetes keeps it. That for mutual TLS has the authority of clients, too.
func (a *Authority) secret(name string) *corev1.Secret {
	chain, key := a.pair(name+".example", "")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key},
	}
	if name == "mutual" {
		secret.Data["ca.crt"] = a.pem
	}
	return secret
}

func (a *Authority) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return roots
}

// credentialsOf are those of a proxy.
func (a *Authority) credentialsOf(account string) credentials.TransportCredentials {
	pair := must(tls.X509KeyPair(a.pair(account, account)))
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: a.roots(), ServerName: serverName})
}

// serveSecurely is istiod's port 15012: it takes identities from certificates.
func (c *Cluster) serveSecurely() {
	pair := must(tls.X509KeyPair(c.authority.pair(serverName, "")))
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: c.authority.roots(), ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	c.istiod.Discovery.Authenticators = []security.Authenticator{&authenticate.ClientCertAuthenticator{}}
	c.istiod.Discovery.Register(server)
	listener := must(net.Listen("tcp", c.secureAddress))
	c.secureAddress = listener.Addr().String()
	go func() { _ = server.Serve(listener) }()
	c.failer.Cleanup(server.Stop)
}

// secretChanged tells istiod's server of a Secret, as the program around it does.
func (c *Cluster) secretChanged(name string) {
	c.istiod.Discovery.ConfigUpdate(&model.PushRequest{
		ConfigsUpdated: sets.New(model.ConfigKey{Kind: kinds.Secret, Name: name, Namespace: namespace}),
		Reason:         model.NewReasonStats(model.SecretTrigger),
	})
}

func (c *Cluster) applySecret(secret *corev1.Secret) {
	apply(c, secret)
	// istiod's cache of Secrets follows the API.
	time.Sleep(200 * time.Millisecond)
	c.secretChanged(secret.Name)
}

// mayReadSecrets answers istiod as the role of a gateway does: both service accounts may list Secrets.
func mayReadSecrets(client kubelib.Client) {
	users := map[string]bool{}
	for _, name := range []string{account, otherAccount} {
		users["system:serviceaccount:"+namespace+":"+name] = true
	}
	client.Kube().(*fake.Clientset).PrependReactor("create", "subjectaccessreviews",
		func(action k8stesting.Action) (bool, runtime.Object, error) {
			review := action.(k8stesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
			return true, &authorizationv1.SubjectAccessReview{
				Status: authorizationv1.SubjectAccessReviewStatus{Allowed: users[review.Spec.User]},
			}, nil
		})
}

// secureRelay gives the relay the identity of the gateways: at istiod, and in front of the gateways.
func (c *Cluster) secureRelay(directory string) func(string) string {
	write := func(name string, chain, key []byte) {
		check(os.WriteFile(filepath.Join(directory, name+".crt"), chain, 0o600))
		check(os.WriteFile(filepath.Join(directory, name+".key"), key, 0o600))
	}
	chain, key := c.authority.pair(account, account)
	write("client", chain, key)
	chain, key = c.authority.pair(serverName, "")
	write("server", chain, key)
	write("authority", c.authority.pem, nil)
	return func(text string) string {
		for from, to := range map[string]string{
			c.address: c.secureAddress,
			"    channel_creds: [{ type: insecure }]\n": "    channel_creds: [{ type: tls, config: { ca_certificate_file: authority.crt, " +
				"certificate_file: client.crt, private_key_file: client.key } }]\n    tls: { server_name: " + serverName + " }\n",
			"  - name: main\n": "  - name: main\n    tls: { certificates: [{ certificate_file: server.crt, private_key_file: server.key }], " +
				"ca_certificate_file: authority.crt, trust_domain: cluster.local }\n",
		} {
			if strings.Count(text, from) != 1 {
				panic("the configuration does not have once " + from)
			}
			text = strings.Replace(text, from, to, 1)
		}
		return text
	}
}

// ofSecrets is the world of gateways that ask istiod for Secrets.
func (w *World) ofSecrets(o *Options) {
	w.refused()
	w.compare("at rest")
	w.atMost(o.streams)
	w.haveSecrets(3)
	authority, cluster := newAuthority("another authority"), w.cluster
	secretsOf := cluster.client().Kube().CoreV1().Secrets(namespace)
	for _, push := range []Push{
		{"another certificate of a gateway", func() { cluster.applySecret(authority.secret("shop")) }},
		{"another authority of clients", func() { cluster.applySecret(authority.secret("mutual")) }},
		// istiod tells nobody that a Secret is gone.
		{"a Secret that was gone for a moment", func() {
			check(secretsOf.Delete(context.Background(), "shop", metav1.DeleteOptions{}))
			cluster.secretChanged("shop")
			cluster.applySecret(authority.secret("shop"))
		}},
		{"a route of the gateway", func() { cluster.put(route(20)) }},
		{"the route is gone", func() { check(cluster.istiod.Store().Delete(gvk.VirtualService, "canary", namespace, nil)) }},
	} {
		w.push(push)
	}
	w.haveSecrets(3)
	// With a class for each proxy's Secrets, one that comes back while istiod is away has to wait for them.
	if !o.isPlain {
		w.restart()
	}
	first := w.relayed[w.pods[0].name]
	first.stop()
	delete(w.relayed, w.pods[0].name)
	w.cluster.applySecret(authority.secret("shop"))
	w.compare("after one has left, and another certificate")
	w.refused()
}

// haveSecrets fails if a gateway has other than so many Secrets: what is equal must be something.
func (w *World) haveSecrets(count int) {
	for name, proxy := range w.direct {
		proxy.lock.Lock()
		if len(proxy.has[secrets]) != count {
			w.fault("istiod gives %s %d Secrets, and not %d", name, len(proxy.has[secrets]), count)
		}
		proxy.lock.Unlock()
	}
}

// refused fails if gateways of another account than the relay's have anything by the relay, or nothing of istiod itself: istiod ends the
// stream of a node that the certificate does not prove.
func (w *World) refused() {
	settleAll(time.Second, time.Time{}, w.strangers, w.strangersRelayed)
	for name, proxy := range w.strangersRelayed {
		count := func(proxy *Proxy) (all int) {
			proxy.lock.Lock()
			defer proxy.lock.Unlock()
			for _, resources := range proxy.has {
				all += len(resources)
			}
			return all
		}
		has, relayed := count(w.strangers[name]), count(proxy)
		fmt.Printf("  %s, of another account: %d resources, %d by the relay\n", name, has, relayed)
		if has == 0 || relayed > 0 {
			w.fault("%s: istiod refuses it behind a relay of another account, and nowhere else", name)
		}
	}
}
