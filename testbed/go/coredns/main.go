// CoreDNS with only the plugins that a cluster's DNS needs: the stock
// program links some fifty, cloud SDKs among them.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// Order matters: a query goes through the plugins in this order.
	dnsserver.Directives = []string{"bind", "ready", "errors", "cache", "kubernetes", "loop"}
}

func main() { coremain.Run() }
