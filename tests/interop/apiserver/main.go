// kube-apiserver, from the module of Kubernetes. Its go.mod names folders of its own repository, so that the module cannot be
// installed by its name alone.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
