package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/tikv/client-go/v2/testutils"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const mostSplits = 20

var errCut = status.Error(codes.Unavailable, "the connection is cut")

// network is what lies between clients and the cluster, and goes wrong when it is told to.
type network struct {
	cluster *testutils.MockCluster

	mu          sync.Mutex
	connections []net.Conn
	requests    int
	disturbAt   int
	disturbed   int
	cutAt       int // the number of the request, 0 for none
	cutOnce     bool
	down        bool
}

// keep says whether a connection may stay.
func (n *network) keep(connection net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		connection.Close()
		return false
	}
	n.connections = append(n.connections, connection)
	return true
}

func (n *network) obey(words []string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := 0
	if len(words) > 1 {
		number, _ = strconv.Atoi(words[1])
	}
	switch {
	case len(words) == 1 && words[0] == "requests":
		return strconv.Itoa(n.requests)
	case len(words) == 1 && words[0] == "mend":
		n.down, n.cutAt = false, 0
	case len(words) == 2 && words[0] == "disturb":
		n.disturbAt = number
	case len(words) == 2 && (words[0] == "cut" || words[0] == "cut-once") && number > 0:
		n.cutAt, n.cutOnce = n.requests+number, words[0] == "cut-once"
	default:
		return fmt.Sprintf("unknown: %q", words)
	}
	return "ok"
}

// intercept sees every request to a store; that clients ask now and then whether it is there does not count.
func (n *network) intercept(
	ctx context.Context, request interface{}, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (interface{}, error) {
	if strings.HasPrefix(info.FullMethod, "/grpc.health.") {
		return handle(ctx, request)
	}
	n.mu.Lock()
	if n.down {
		n.mu.Unlock()
		return nil, errCut
	}
	n.requests++
	cut := n.requests == n.cutAt
	if cut {
		n.down = true
	}
	if n.disturbAt > 0 && n.requests%n.disturbAt == 0 {
		n.disturb(keyOf(request))
	}
	n.mu.Unlock()

	answer, err := handle(ctx, request)
	if cut {
		n.mu.Lock()
		for _, connection := range n.connections {
			connection.Close()
		}
		n.connections = nil
		n.down = !n.cutOnce
		n.mu.Unlock()
		return nil, errCut
	}
	return answer, err
}

// disturb splits the region of a key there, or lets another store lead it, in turns.
func (n *network) disturb(key []byte) {
	region, leader, _ := n.cluster.GetRegionByKey(key)
	if region == nil || len(key) == 0 {
		return
	}
	n.disturbed++
	// Each split makes scans longer, and with them the number of splits.
	if n.disturbed%2 == 0 && n.disturbed < 2*mostSplits && string(region.StartKey) != string(key) {
		peers := n.cluster.AllocIDs(len(region.Peers))
		n.cluster.SplitRaw(region.Id, n.cluster.AllocID(), key, peers, peers[n.disturbed%len(peers)])
		return
	}
	for i, peer := range region.Peers {
		if peer.Id == leader.GetId() {
			n.cluster.ChangeLeader(region.Id, region.Peers[(i+1)%len(region.Peers)].Id)
		}
	}
}
