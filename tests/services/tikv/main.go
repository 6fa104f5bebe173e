// A TiKV cluster for tests: PD and three stores on loopback, over the test double of the authors of TiKV's client.
//
// The double keeps keys, regions and leaders, and refuses requests for what has moved, as TiKV does. This program
// puts it behind gRPC and obeys commands on its standard input; each is answered with one line:
//
//	requests    how many requests the stores have had
//	disturb N   before every Nth request split its region or move its leader; 0 ends that
//	cut N       do N more requests, then end all connections before the last is answered, and take no new ones
//	cut-once N  the same, and take new ones
//	mend        take connections again
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

func main() {
	pdAddress := flag.String("pd", "", "where PD listens")
	storeAddresses := flag.String("stores", "", "where the stores listen, by commas")
	data := flag.String("data", "", "the directory of the data")
	certificates := flag.String("tls", "", "the directory of ca.pem, server.pem and server-key.pem, if TLS is spoken")
	flag.Parse()

	client, cluster, pd, err := testutils.NewMockTiKV(filepath.Join(*data, "db"), nil)
	must(err)
	stores, _, _, _ := testutils.BootstrapWithMultiStores(cluster, 3)
	network := &network{cluster: cluster}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(1 << 30),
		// As TiKV has it: its clients ask every few seconds whether it is there.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
	scheme := "http://"
	if *certificates != "" {
		scheme = "https://"
		options = append(options, grpc.Creds(credentialsFrom(*certificates)))
	}
	serve := func(address string, register func(*grpc.Server), more ...grpc.ServerOption) {
		server := grpc.NewServer(append(more, options...)...)
		register(server)
		grpc_health_v1.RegisterHealthServer(server, health.NewServer())
		go func() { must(server.Serve(network.listen(address))) }()
	}
	for i, address := range strings.Split(*storeAddresses, ",") {
		cluster.UpdateStoreAddr(stores[i], address)
		cluster.UpdateStorePeerAddr(stores[i], address)
		store := &storeServer{client: client, address: address}
		serve(address, func(s *grpc.Server) { tikvpb.RegisterTikvServer(s, store) },
			grpc.UnaryInterceptor(network.intercept))
	}
	serve(*pdAddress, func(s *grpc.Server) {
		pdpb.RegisterPDServer(s, &pdServer{cluster: cluster, pd: pd, address: scheme + *pdAddress})
	})
	fmt.Println("ready")

	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		fmt.Println(network.obey(strings.Fields(input.Text())))
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// credentialsFrom asks clients for certificates of the same authority.
func credentialsFrom(directory string) credentials.TransportCredentials {
	pair, err := tls.LoadX509KeyPair(filepath.Join(directory, "server.pem"), filepath.Join(directory, "server-key.pem"))
	must(err)
	authority, err := os.ReadFile(filepath.Join(directory, "ca.pem"))
	must(err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		must(errors.New("ca.pem has no certificate"))
	}
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	})
}

// listen takes connections as long as the network is whole.
func (n *network) listen(address string) net.Listener {
	listener, err := net.Listen("tcp", address)
	must(err)
	return &cuttable{Listener: listener, network: n}
}

type cuttable struct {
	net.Listener
	network *network
}

func (c *cuttable) Accept() (net.Conn, error) {
	for {
		connection, err := c.Listener.Accept()
		if err != nil || c.network.keep(connection) {
			return connection, err
		}
	}
}
