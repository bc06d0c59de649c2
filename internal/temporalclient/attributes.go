package temporalclient

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc/codes"

	"unwind/teardown"
)

const (
	// attributesLimit bounds the registration. A server with several processes
	// tells them of a new attribute within about 10 s.
	attributesLimit = 45 * time.Second
	attributesPause = 200 * time.Millisecond
	// A rejection may come from two workers that register at the same time; one
	// that comes again and again is meant.
	attributesRejections = 5
)

// Attributes are the search attributes, each of type Keyword.
var Attributes = []string{
	teardown.SessionAttribute, teardown.TaskAttribute, teardown.HostAttribute, teardown.PhaseAttribute, teardown.ReasonAttribute,
}

// EnsureSearchAttributes registers the search attributes that the namespace
// lacks and returns when the server knows all of them, at the latest after 45 s.
// Where the operator service is not for us, it is enough that somebody else
// registered them. Errors have code temporal_unavailable, or invalid_config if a
// person has to do something.
func (c *Connection) EnsureSearchAttributes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attributesLimit)
	defer cancel()
	rejections := 0
	for {
		err := c.addMissingAttributes(ctx)
		if code(err) == codes.InvalidArgument {
			rejections++
		}
		if err == nil || notOurs(err) {
			// The operator's list may be ahead of the processes that take work.
			unknown := c.queryAttributes(ctx)
			if unknown == nil {
				return nil
			}
			if err == nil {
				err = unknown
			}
		}
		if permanent(err) || rejections == attributesRejections {
			return c.explainAttributes(err)
		}
		select {
		case <-ctx.Done():
			return c.explainAttributes(err)
		case <-time.After(attributesPause):
		}
	}
}

// addMissingAttributes returns nil once the server lists all of them.
func (c *Connection) addMissingAttributes(ctx context.Context) error {
	missing, err := c.missingAttributes(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	_, err = c.Client.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: c.Namespace, SearchAttributes: missing})
	if err != nil && code(err) != codes.AlreadyExists {
		return err
	}
	missing, err = c.missingAttributes(ctx)
	if err == nil && len(missing) > 0 {
		err = serviceerror.NewUnavailable("not listed yet: " + strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return err
}

func (c *Connection) missingAttributes(ctx context.Context) (map[string]enumspb.IndexedValueType, error) {
	have, err := c.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: c.Namespace})
	if err != nil {
		return nil, err
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, name := range Attributes {
		kind, found := have.GetCustomAttributes()[name]
		if !found {
			missing[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
		} else if kind != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
			return nil, &teardown.Error{Code: teardown.CodeInvalidConfig, Message: fmt.Sprintf(
				"namespace %q already has a search attribute %s of type %s, unwind needs it as Keyword; remove it with `temporal operator search-attribute remove -n %s --name %s`, or set UNWIND_SEARCH_ATTRIBUTES=off",
				c.Namespace, name, kind, c.Namespace, name)}
		}
	}
	return missing, nil
}

// queryAttributes asks for a workflow by all of the attributes, which fails as
// long as the process that answers does not know one of them.
func (c *Connection) queryAttributes(ctx context.Context) error {
	var conditions []string
	for _, name := range Attributes {
		conditions = append(conditions, name+` = ""`)
	}
	_, err := c.Client.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: c.Namespace, Query: strings.Join(conditions, " AND ")})
	return err
}

// notOurs: the operator service is closed to this client.
func notOurs(err error) bool { return refused(err) || code(err) == codes.Unimplemented }

// permanent: asking again would be answered in the same way.
func permanent(err error) bool {
	return notOurs(err) || noNamespace(err) || teardown.CodeOf(err) != ""
}

func (c *Connection) explainAttributes(err error) error {
	names := strings.Join(Attributes, ", ")
	switch {
	case teardown.CodeOf(err) != "" || noNamespace(err):
		return c.Explain(err)
	case notOurs(err):
		return &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: err, Message: fmt.Sprintf(
			"Temporal does not let this client register search attributes in namespace %q; have an operator add %s (each of type Keyword), or set UNWIND_SEARCH_ATTRIBUTES=off",
			c.Namespace, names)}
	case code(err) == codes.InvalidArgument:
		return &teardown.Error{Code: teardown.CodeInvalidConfig, Cause: err, Message: fmt.Sprintf(
			"namespace %q does not take the search attributes %s; make room for them, or set UNWIND_SEARCH_ATTRIBUTES=off",
			c.Namespace, names)}
	case answered(err):
		return &teardown.Error{Code: teardown.CodeTemporalUnavailable, Retryable: true, Cause: err, Message: fmt.Sprintf(
			"Temporal at %s did not register the search attributes %s in time; start again, or set UNWIND_SEARCH_ATTRIBUTES=off",
			c.Address, names)}
	}
	return c.Explain(err)
}
