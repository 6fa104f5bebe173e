package main

import (
	"context"
	"sync"
	"time"

	"github.com/pingcap/kvproto/pkg/kvrpcpb"
	"github.com/pingcap/kvproto/pkg/metapb"
	"github.com/pingcap/kvproto/pkg/pdpb"
	"github.com/pingcap/kvproto/pkg/tikvpb"
	"github.com/tikv/client-go/v2/testutils"
	"github.com/tikv/client-go/v2/tikvrpc"
	pd "github.com/tikv/pd/client"
)

const clusterID = 1

// pdServer answers what the clients of RawKV ask PD.
type pdServer struct {
	pdpb.UnimplementedPDServer
	cluster *testutils.MockCluster
	pd      pd.Client
	address string
}

func header() *pdpb.ResponseHeader { return &pdpb.ResponseHeader{ClusterId: clusterID} }

func (s *pdServer) GetMembers(context.Context, *pdpb.GetMembersRequest) (*pdpb.GetMembersResponse, error) {
	member := &pdpb.Member{Name: "pd", MemberId: 1, ClientUrls: []string{s.address}}
	return &pdpb.GetMembersResponse{Header: header(), Members: []*pdpb.Member{member}, Leader: member}, nil
}

func (s *pdServer) GetStore(ctx context.Context, request *pdpb.GetStoreRequest) (*pdpb.GetStoreResponse, error) {
	store, err := s.pd.GetStore(ctx, request.StoreId)
	if err != nil {
		return nil, err
	}
	return &pdpb.GetStoreResponse{Header: header(), Store: versioned(store)}, nil
}

func (s *pdServer) GetAllStores(context.Context, *pdpb.GetAllStoresRequest) (*pdpb.GetAllStoresResponse, error) {
	stores := s.cluster.GetAllStores()
	for i, store := range stores {
		stores[i] = versioned(store)
	}
	return &pdpb.GetAllStoresResponse{Header: header(), Stores: stores}, nil
}

// versioned says what TiKV the store would be, which clients ask for.
func versioned(store *metapb.Store) *metapb.Store {
	told := *store
	told.Version = "6.5.0"
	return &told
}

func (s *pdServer) GetRegion(_ context.Context, request *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	region, leader, _ := s.cluster.GetRegionByKey(request.RegionKey)
	return regionFound(region, leader)
}

func (s *pdServer) GetPrevRegion(_ context.Context, request *pdpb.GetRegionRequest) (*pdpb.GetRegionResponse, error) {
	region, leader, _ := s.cluster.GetPrevRegionByKey(request.RegionKey)
	return regionFound(region, leader)
}

func (s *pdServer) GetRegionByID(
	_ context.Context, request *pdpb.GetRegionByIDRequest,
) (*pdpb.GetRegionResponse, error) {
	region, leader, _ := s.cluster.GetRegionByID(request.RegionId)
	return regionFound(region, leader)
}

func (s *pdServer) ScanRegions(
	_ context.Context, request *pdpb.ScanRegionsRequest,
) (*pdpb.ScanRegionsResponse, error) {
	answer := &pdpb.ScanRegionsResponse{Header: header()}
	for _, region := range s.cluster.ScanRegions(request.StartKey, request.EndKey, int(request.Limit)) {
		answer.Regions = append(answer.Regions, &pdpb.Region{Region: region.Meta, Leader: region.Leader})
	}
	return answer, nil
}

func regionFound(region *metapb.Region, leader *metapb.Peer) (*pdpb.GetRegionResponse, error) {
	return &pdpb.GetRegionResponse{Header: header(), Region: region, Leader: leader}, nil
}

// storeServer gives the requests of RawKV to the double.
type storeServer struct {
	tikvpb.UnimplementedTikvServer
	client  *testutils.MockClient
	address string
}

func ask[T any](
	ctx context.Context, s *storeServer, command tikvrpc.CmdType, request interface{}, at *kvrpcpb.Context,
) (*T, error) {
	answer, err := s.client.SendRequest(ctx, s.address, tikvrpc.NewRequest(command, request, *at), time.Minute)
	if err != nil {
		return nil, err
	}
	return answer.Resp.(*T), nil
}

func (s *storeServer) RawGet(ctx context.Context, r *kvrpcpb.RawGetRequest) (*kvrpcpb.RawGetResponse, error) {
	return ask[kvrpcpb.RawGetResponse](ctx, s, tikvrpc.CmdRawGet, r, r.Context)
}

func (s *storeServer) RawPut(ctx context.Context, r *kvrpcpb.RawPutRequest) (*kvrpcpb.RawPutResponse, error) {
	return ask[kvrpcpb.RawPutResponse](ctx, s, tikvrpc.CmdRawPut, r, r.Context)
}

func (s *storeServer) RawBatchPut(
	ctx context.Context, r *kvrpcpb.RawBatchPutRequest,
) (*kvrpcpb.RawBatchPutResponse, error) {
	return ask[kvrpcpb.RawBatchPutResponse](ctx, s, tikvrpc.CmdRawBatchPut, r, r.Context)
}

func (s *storeServer) RawDelete(
	ctx context.Context, r *kvrpcpb.RawDeleteRequest,
) (*kvrpcpb.RawDeleteResponse, error) {
	return ask[kvrpcpb.RawDeleteResponse](ctx, s, tikvrpc.CmdRawDelete, r, r.Context)
}

func (s *storeServer) RawBatchDelete(
	ctx context.Context, r *kvrpcpb.RawBatchDeleteRequest,
) (*kvrpcpb.RawBatchDeleteResponse, error) {
	return ask[kvrpcpb.RawBatchDeleteResponse](ctx, s, tikvrpc.CmdRawBatchDelete, r, r.Context)
}

func (s *storeServer) RawDeleteRange(
	ctx context.Context, r *kvrpcpb.RawDeleteRangeRequest,
) (*kvrpcpb.RawDeleteRangeResponse, error) {
	return ask[kvrpcpb.RawDeleteRangeResponse](ctx, s, tikvrpc.CmdRawDeleteRange, r, r.Context)
}

func (s *storeServer) RawScan(ctx context.Context, r *kvrpcpb.RawScanRequest) (*kvrpcpb.RawScanResponse, error) {
	return ask[kvrpcpb.RawScanResponse](ctx, s, tikvrpc.CmdRawScan, r, r.Context)
}

// One at a time: the double knows no swap where there was no key, so here it is a look and a put.
var swapping sync.Mutex

func (s *storeServer) RawCompareAndSwap(
	ctx context.Context, r *kvrpcpb.RawCASRequest,
) (*kvrpcpb.RawCASResponse, error) {
	swapping.Lock()
	defer swapping.Unlock()
	found, err := s.RawGet(ctx, &kvrpcpb.RawGetRequest{Context: r.Context, Key: r.Key, Cf: r.Cf})
	switch {
	case err != nil || found.RegionError != nil:
		return &kvrpcpb.RawCASResponse{RegionError: found.GetRegionError()}, err
	case !found.NotFound && !r.PreviousNotExist:
		return ask[kvrpcpb.RawCASResponse](ctx, s, tikvrpc.CmdRawCompareAndSwap, r, r.Context)
	case found.NotFound != r.PreviousNotExist:
		return &kvrpcpb.RawCASResponse{PreviousNotExist: found.NotFound, PreviousValue: found.Value}, nil
	}
	put, err := s.RawPut(ctx, &kvrpcpb.RawPutRequest{Context: r.Context, Key: r.Key, Value: r.Value, Cf: r.Cf})
	if err != nil {
		return nil, err
	}
	return &kvrpcpb.RawCASResponse{RegionError: put.RegionError, Succeed: put.RegionError == nil, PreviousNotExist: true}, nil
}

// keyOf is a key of a request, from the middle where it has many.
func keyOf(request interface{}) []byte {
	switch r := request.(type) {
	case interface{ GetKey() []byte }:
		return r.GetKey()
	case interface{ GetStartKey() []byte }:
		return r.GetStartKey()
	case interface{ GetKeys() [][]byte }:
		return r.GetKeys()[len(r.GetKeys())/2]
	case interface{ GetPairs() []*kvrpcpb.KvPair }:
		return r.GetPairs()[len(r.GetPairs())/2].Key
	}
	return nil
}
