package main

import "fmt"

// Step is a change of the resources, with a text for some gateways by which the proxies show it.
type Step struct {
	name       string
	change     func(*Resources)
	has, lacks map[string]string
}

func steps() []Step {
	pair := newCertificate("second.shop.example", false)
	one := func(text string) map[string]string { return map[string]string{"shop": text} }
	return []Step{
		{"a changed backend", func(r *Resources) { r.putBackend("shop-0", "10.1.0.1", "10.1.0.9") }, one("10.1.0.9"), nil},
		{"a backend and a route more", func(r *Resources) {
			r.putBackend("shop-more", "10.1.9.1")
			r.putRoute("shop-more", "shop", "shop-more")
		}, one("10.1.9.1"), nil},
		{"a route to another backend", func(r *Resources) { r.putRoute("shop-0", "shop", "shop-more") }, nil, one("10.1.0.9")},
		{"the route back, and one less with its backend", func(r *Resources) {
			r.putRoute("shop-0", "shop", "shop-0")
			r.drop("route-shop-more", "backend-shop-more")
		}, one("10.1.0.9"), one("10.1.9.1")},
		{"another certificate", func(r *Resources) { r.putPair("shop", pair) }, one(pair.certificate), nil},
		{"a ClientTrafficPolicy", func(r *Resources) { r.putTraffic("shop", 7777, false) }, one("connection_limit"), nil},
		{"certificates of clients", func(r *Resources) { r.putTraffic("shop", 7777, true) }, one("default/shop/ca.crt"), nil},
		{"a listener more", func(r *Resources) { r.putGateway("shop", "further") }, one("default/shop/further"), nil},
		{"the listener and the policy less", func(r *Resources) {
			r.putGateway("shop", "")
			r.drop("traffic-shop")
		}, nil, one("default/shop/further")},
		{"a change at one gateway", func(r *Resources) { r.putBackend("api-0", "10.2.0.9") }, map[string]string{"api": "10.2.0.9"}, nil},
		{"a change at both gateways", func(r *Resources) {
			r.putRoute("both-shop", "shop", "api-1")
			r.putRoute("both-api", "api", "shop-1")
		}, map[string]string{"shop": "both-shop.shop.example", "api": "both-api.api.example"}, nil},
		{"a gateway for proxies that wait", func(r *Resources) {
			r.putSecret("late", "first")
			r.putGateway("late", "")
			r.putRoute("late", "late", "shop-0")
		}, map[string]string{"late": "late.late.example"}, nil},
		{"a gateway is deleted", func(r *Resources) { r.drop("gateway-shop") }, nil, one("10.1.0.9")},
		{"the gateway is back", func(r *Resources) { r.putGateway("shop", "") }, one("10.1.0.9"), nil},
		burst("20 changes in a row", 20),
	}
}

// burst is 20 changes of endpoints, routes and certificates in turn.
func burst(name string, from int) Step {
	last := fmt.Sprintf("10.1.0.%d", 100+from+19)
	return Step{name, func(r *Resources) {
		for number := from; number < from+20; number++ {
			switch number % 3 {
			case 0:
				r.putRoute("shop-1", "shop", fmt.Sprintf("shop-%d", number%2))
			case 1:
				r.putBackend("shop-1", fmt.Sprintf("10.1.1.%d", 100+number))
			default:
				r.putSecret("shop", fmt.Sprintf("burst-%d", number))
			}
		}
		r.putBackend("shop-0", last)
	}, map[string]string{"shop": last}, nil}
}
