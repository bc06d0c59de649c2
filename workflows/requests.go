package workflows

import (
	"go.temporal.io/sdk/workflow"

	"unwind/teardown"
)

// requests keeps the retry requests of a run. They are kept one by one, not as
// a flag, so that one that arrives while a round is under way causes another
// round.
type requests struct {
	channel workflow.ReceiveChannel
	pending []teardown.RetryRequest
	handled []string // ids, newest last, at most MaxListed
}

func (r *requests) listen(ctx workflow.Context) {
	r.channel = workflow.GetSignalChannelWithOptions(ctx, teardown.RetrySignal, workflow.SignalChannelOptions{
		Description: `Look again at what was kept: {"request_id": "...", "requested_by": "..."}, all fields optional`,
	})
	workflow.GoNamed(ctx, "retry-requests", func(ctx workflow.Context) {
		for {
			var request teardown.RetryRequest
			r.channel.Receive(ctx, &request)
			r.pending = append(r.pending, request)
		}
	})
}

// any reports whether a request waits for a round.
func (r *requests) any() bool { return len(r.pending) > 0 || r.channel.Len() > 0 }

// peek answers the requests that wait, without taking them.
func (r *requests) peek() []teardown.RetryRequest {
	r.drain()
	return append([]teardown.RetryRequest(nil), r.pending...)
}

// taken marks the first n requests as handled.
func (r *requests) taken(n int) {
	for _, request := range r.pending[:n] {
		if request.RequestID != "" {
			r.handled = append(r.handled, request.RequestID)
		}
	}
	r.pending = r.pending[n:]
	if extra := len(r.handled) - teardown.MaxListed; extra > 0 {
		r.handled = append([]string(nil), r.handled[extra:]...)
	}
}

// drain reads what the server has delivered and the listener has not yet seen:
// continuing as new would lose it.
func (r *requests) drain() {
	for {
		var request teardown.RetryRequest
		if !r.channel.ReceiveAsync(&request) {
			return
		}
		r.pending = append(r.pending, request)
	}
}
